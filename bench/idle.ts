/** Starting the program as users do, and what it takes while nothing is to be done, with 1,000 and 10,000 ready resources. */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import { freePort } from "#test/setup/postgres.ts"
import { benchFolder } from "./api-process.ts"
import { cpuBelow, cpuOf, postmasterOf } from "./cpu.ts"
import { type Figure, median, spread } from "./figures.ts"
import { ended, serving } from "./load.ts"

const program = fileURLToPath(new URL("../src/cli/svc.mjs", import.meta.url))
const starts = 5
const restSeconds = 30

const rssMegabytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

/** Seconds of a command until it ends. */
const timed = async (args: ReadonlyArray<string>, env: NodeJS.ProcessEnv): Promise<number> => {
  const began = performance.now()
  const child = spawn(process.execPath, [program, ...args], { env, stdio: "ignore" })
  await new Promise((resolve) => child.once("exit", resolve))
  return (performance.now() - began) / 1_000
}

const addReady = (sql: postgres.Sql, count: number) => sql`
  with made as (
    insert into resource (org_id, uid, kind, name, spec, status, phase, observed_generation, settled, managed_by)
    select o.id, uuidv7(), 'Project', 'idle-' || gen_random_uuid(), '{"name": "I", "runtimeClass": "always-on"}',
      '{}', 'ready', 1, true, 'api'
    from organization o cross join generate_series(1, ${count}) where o.slug = 'main'
    returning org_id, uid, kind
  )
  insert into work (org_id, uid, kind, due_at, rank, kept)
  select org_id, uid, kind, now() + interval '1 day' * (1 + random()), 'infinity', true from made`

export const idle = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = benchFolder()
  const [port, metricsPort] = await Promise.all([freePort(), freePort()])
  const env = {
    ...process.env,
    SVC_DATA_DIR: path.join(base, "data"),
    XDG_CONFIG_HOME: path.join(base, "config"),
    SVC_DATABASE_URL: url,
    SVC_PORT: String(port),
    SVC_METRICS_PORT: String(metricsPort),
    SVC_ROLES: "api,engine"
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  let plane: ChildProcess | undefined
  /** Seconds until it answers. */
  const start = async () => {
    const began = performance.now()
    plane = spawn(process.execPath, [program, "up", "--no-apply"], {
      cwd: base,
      env,
      stdio: ["ignore", "ignore", "inherit"]
    })
    await serving(port, "/v1/health", plane)
    return (performance.now() - began) / 1_000
  }
  const stop = async () => {
    if (plane !== undefined) await ended(plane)
  }
  const statements = async () => {
    const [row] = await sql<[{ n: number }]>`
      select xact_commit::float8 as n from pg_stat_database where datname = current_database()`
    return row.n
  }
  const figures: Array<Figure> = []
  const timesOf = (name: string, aim: string, times: ReadonlyArray<number>): Figure => ({
    name,
    value: median(times),
    unit: "s",
    aim,
    note: spread(times)
  })
  const several = async (one: () => Promise<number>) => {
    const times: Array<number> = []
    for (let i = 0; i < starts; i++) times.push(await one())
    return times
  }
  try {
    figures.push({ name: "first start, migrations included", value: await start(), unit: "s" })
    figures.push(timesOf("svc --help", "< 0.25", await several(() => timed(["--help"], env))))
    figures.push(timesOf("svc status", "< 0.4", await several(() => timed(["status"], env))))
    await stop()
    const again = await several(async () => {
      const seconds = await start()
      await stop()
      return seconds
    })
    figures.push(timesOf("start", "< 1", again))
    const postmaster = await postmasterOf(sql)
    for (const [add, label] of [
      [1_000, "1,000"],
      [9_000, "10,000"]
    ] as const) {
      await addReady(sql, add)
      await sql`vacuum analyze`
      await start()
      await sleep(30_000)
      const pid = plane?.pid ?? 0
      const before = { node: cpuOf(pid), store: cpuBelow(postmaster), statements: await statements() }
      await sleep(restSeconds * 1_000)
      const per = (used: number) => used / restSeconds
      figures.push(
        {
          name: `idle CPU, ${label} ready`,
          value: per(cpuOf(pid) - before.node) * 100,
          unit: "% core",
          aim: "< 0.5"
        },
        {
          name: `idle CPU of Postgres, ${label} ready`,
          value: per(cpuBelow(postmaster) - before.store) * 100,
          unit: "% core"
        },
        {
          name: `transactions at rest, ${label} ready`,
          value: per((await statements()) - before.statements),
          unit: "/s",
          aim: "< 3",
          note: "nearly each is one statement"
        },
        { name: `idle RSS, ${label} ready`, value: rssMegabytes(pid), unit: "MB", aim: "< 200" }
      )
      await stop()
    }
  } finally {
    await stop()
    await sql.end()
    fs.rmSync(base, { recursive: true, force: true })
  }
  return figures
}
