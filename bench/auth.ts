/**
 * What authentication costs: a GET with it against the same GET without, each in a process of its own on the same
 * Postgres, in turns within one run.
 */
import type { ChildProcess } from "node:child_process"
import { createHash, randomBytes, randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import postgres from "postgres"
import { apiProcess, benchFolder, seedProjects } from "./api-process.ts"
import { cpuBelow, cpuOf, postmasterOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"
import { ended, load } from "./load.ts"

const rounds = 11
const seconds = 1.5

export const auth = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = benchFolder()
  const org = randomUUIDv7()
  const start = async (name: "on" | "off") => {
    const { port, child } = await apiProcess(base, url, { env: { BENCH_AUTH: name, BENCH_ORG: org } })
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
    await seedProjects(sql, org)
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
