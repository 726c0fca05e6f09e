/**
 * What authentication costs: a GET with it against the same GET without, each in a process of its own on the same
 * Postgres, in turns within one run.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { createHash, randomBytes, randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import { freePort } from "#test/setup/postgres.ts"
import { ended, load, serving } from "./api.ts"
import { type Figure, median } from "./figures.ts"

const rounds = 11
const seconds = 1.5

/** CPU seconds that a process has used. */
export const cpuOf = (pid: number | string): number => {
  try {
    const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    return (Number(fields[11]) + Number(fields[12])) / 100
  } catch {
    return 0
  }
}
/** CPU seconds of a database server and its connections. */
export const cpuBelow = (parent: number): number =>
  cpuOf(parent) +
  fs
    .readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8")
    .split(" ")
    .filter((pid) => pid !== "")
    .reduce((sum, pid) => sum + cpuOf(pid), 0)

/** The process id of the database server. */
export const postmasterOf = async (sql: postgres.Sql): Promise<number> => {
  const [backend] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
  return Number(/PPid:\s+(\d+)/.exec(fs.readFileSync(`/proc/${backend.pid}/status`, "utf8"))?.[1])
}

export const auth = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  fs.chmodSync(base, 0o755)
  const org = randomUUIDv7()
  const start = async (name: "on" | "off") => {
    const [port, metricsPort] = await Promise.all([freePort(), freePort()])
    const child = spawn(process.execPath, [fileURLToPath(new URL("./auth-server.ts", import.meta.url))], {
      cwd: base,
      stdio: ["ignore", "ignore", "inherit"],
      env: {
        ...process.env,
        BENCH_AUTH: name,
        BENCH_ORG: org,
        SVC_DATA_DIR: path.join(base, "data"),
        SVC_DATABASE_URL: url,
        SVC_PORT: String(port),
        SVC_METRICS_PORT: String(metricsPort),
        SVC_RATE_LIMIT: "100000000",
        SVC_ROLES: "api"
      }
    })
    await serving(port, "/v1/health", child)
    return {
      name,
      port,
      child,
      rates: [] as Array<number>,
      p99: [] as Array<number>,
      cpu: [] as Array<number>
    }
  }
  const servers: Array<Awaited<ReturnType<typeof start>>> = []
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const key = `svc_${randomBytes(20).toString("hex")}`
  try {
    servers.push(await start("on"))
    await sql`insert into organization (id, name, slug, billing_status) values (${org}, 'Bench', 'bench', 'active')`
    const user = randomUUIDv7()
    await sql`insert into account (id, email, name) values (${user}, 'bench@example.test', 'Bench')`
    await sql`insert into member (org_id, id, user_id, role) values (${org}, ${randomUUIDv7()}, ${user}, 'owner')`
    await sql`insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
      values (${org}, ${randomUUIDv7()}, 'bench', 'svc_', ${createHash("sha256").update(key).digest()}, 'admin', ${user})`
    await sql`
      insert into resource (org_id, uid, kind, name, spec, status, phase, observed_generation, settled, managed_by)
      select ${org}, gen_random_uuid(), 'Project', 'project-' || i, '{"name": "P", "runtimeClass": "always-on"}', '{}',
        'ready', 1, true, 'api'
      from generate_series(1, 20) i`
    await sql`analyze`
    servers.push(await start("off"))
    const postmaster = await postmasterOf(sql)
    for (let round = 0; round < rounds; round++) {
      for (const server of servers) {
        const get = () => ({ method: "GET", path: "/v1/orgs/bench/projects" })
        const used = () => cpuOf(server.child.pid ?? 0) + cpuBelow(postmaster)
        const before = used()
        let sent = 0
        const counted = () => {
          sent++
          return get()
        }
        const { rate, p99 } = await load(server.port, counted, { authorization: `Bearer ${key}` }, seconds)
        server.cpu.push((used() - before) / sent)
        server.rates.push(rate)
        server.p99.push(p99)
      }
    }
  } finally {
    await Promise.all(servers.map(({ child }: { child: ChildProcess }) => ended(child)))
    await sql.end()
    fs.rmSync(base, { recursive: true, force: true })
  }
  const [on, off] = servers
  if (on === undefined || off === undefined) throw new Error("a server is missing")
  const cost = (server: { readonly cpu: ReadonlyArray<number> }) => median(server.cpu)
  const ratios = on.rates.map((rate, round) => rate / (off.rates[round] ?? rate))
  return [
    {
      name: "GET, 20 projects, with authentication",
      value: median(on.rates),
      unit: "/s",
      note: `p99 ${median(on.p99).toFixed(1)} ms; without ${Math.round(median(off.rates))}/s, p99 ${median(off.p99).toFixed(1)} ms`
    },
    {
      name: "with / without",
      value: median(ratios),
      unit: "x",
      aim: ">= 0.85",
      note: `rounds ${ratios.map((ratio) => ratio.toFixed(2)).join(" ")}`
    },
    {
      // What else runs on the machine does not disturb this one.
      name: "CPU of a GET without / with, store included",
      value: cost(off) / cost(on),
      unit: "x",
      note: `${(cost(on) * 1e6).toFixed(0)} µs with, ${(cost(off) * 1e6).toFixed(0)} µs without`
    }
  ]
}
