/**
 * 10,000 cron jobs of 20 organizations that share one minute: how long after it the runs are claimed, and how long after
 * it a fast app has the requests. Planned, claimed, signed, sent and recorded as in production, by one control plane; the
 * app is a process of its own. Held against the same app called by nothing but Node's own HTTP client.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes, randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as http from "node:http"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { DueRuns } from "#src/crons/DueRuns.ts"
import * as runner from "#src/crons/runner.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Messages } from "#src/queues/Messages.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { type Figure, median, spread } from "./figures.ts"

const jobs = 10_000
const organizations = 20

/** Answers at once and notes when each request came; tells all of it on GET. */
const app = `
  const times = []
  require("node:http").createServer((request, response) => {
    if (request.method === "GET") return response.end(JSON.stringify(times))
    times.push(Date.now())
    request.resume()
    request.on("end", () => response.writeHead(204).end())
  }).listen(0, "127.0.0.1", function () { console.log(this.address().port) })`

const startApp = () =>
  new Promise<{ readonly child: ChildProcess; readonly origin: string }>((resolve, reject) => {
    const child = spawn(process.execPath, ["-e", app], { stdio: ["ignore", "pipe", "inherit"] })
    child.once("error", reject)
    child.stdout?.once("data", (port: Buffer) =>
      resolve({ child, origin: `http://127.0.0.1:${port.toString().trim()}` })
    )
  })

const seed = async (sql: postgres.Sql, origin: string, at: Date) => {
  for (let i = 0; i < organizations; i++) {
    const [org, project, environment] = [randomUUID(), randomUUID(), randomUUID()]
    await sql`insert into organization (id, name, slug, billing_status) values (${org}, 'bench', ${`bench-${org.slice(-12)}`}, 'active')`
    await sql`insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by)
      values (${org}, ${environment}, 'Environment', ${project}, 'production', ${project}, ${sql.json({ origin })}, 'api')`
    const config = {
      schedule: "0 * * * *",
      timezone: "Europe/Berlin",
      enabled: true,
      target: { kind: "http", path: "/jobs", method: "POST", body: { report: "daily" } },
      retry: { maxAttempts: 3, initialDelaySeconds: 10, maxDelaySeconds: 3600 },
      concurrencyPolicy: "skip",
      timeoutSeconds: 60
    }
    await sql`insert into cron_schedule (org_id, uid, environment_uid, name, config, fence, next_at)
      select ${org}, gen_random_uuid(), ${environment}, 'job-' || i, ${sql.json(config)}, 1, ${at}
      from generate_series(1, ${jobs / organizations}) i`
  }
  await sql`vacuum analyze cron_schedule`
}

/** Seconds that Node's client takes for as many requests. */
const bareSeconds = async (origin: string): Promise<number> => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 250 })
  const body = JSON.stringify({ body: { report: "daily" } })
  const before = performance.now()
  await Promise.all(
    Array.from(
      { length: jobs },
      () =>
        new Promise<void>((resolve, reject) => {
          const headers = { "content-type": "application/json", "content-length": body.length }
          const request = http.request(`${origin}/jobs`, { agent, method: "POST", headers }, (answer) => {
            answer.resume()
            answer.on("end", resolve)
          })
          request.on("error", reject)
          request.end(body)
        })
    )
  )
  agent.destroy()
  return (performance.now() - before) / 1000
}

const once = async (url: string, sql: postgres.Sql) => {
  await sql`truncate cron_schedule, cron_run`
  const { child, origin } = await startApp()
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  try {
    const bare = await startApp()
    const floor = await bareSeconds(bare.origin).finally(() => bare.child.kill())
    // Planned in calm before their time, as always.
    const at = new Date(Math.ceil(Date.now() / 1000) * 1000 + 12_000)
    await seed(sql, origin, at)
    const key = `bench:${randomBytes(32).toString("base64")}`
    const plane = runner.layer.pipe(
      Layer.provide(DueRuns.layer),
      Layer.provide(Layer.mergeAll(Outbound.layer, Invocations.layer, Messages.layer)),
      Layer.provide(CertificateAuthority.layer),
      Layer.provide(PlatformSecrets.layer),
      Layer.provide(KeyRing.layerOf(Redacted.make(key))),
      Layer.provide(Db.layer({ url: Redacted.make(url) })),
      Layer.provide(AppConfig.layerWith({ dataDir }))
    )
    await sql`delete from platform_secret`
    await sql`delete from secret`
    const done = async () => {
      const deadline = Date.now() + 90_000
      for (;;) {
        await new Promise((resolve) => setTimeout(resolve, 500))
        const [row] = await sql<[{ n: number }]>`
          select count(*)::int as n from cron_run where status = 'succeeded'`
        if (row.n === jobs || Date.now() > deadline) return row.n
      }
    }
    const succeeded = await Effect.runPromise(
      Effect.scoped(Effect.andThen(Layer.build(plane), Effect.promise(done)))
    )
    if (succeeded !== jobs) throw new Error(`${succeeded} of ${jobs} runs succeeded`)
    const [row] = await sql<[{ p50: number; p99: number; max: number; planned: number }]>`
      with late as (
        select extract(epoch from started_at - scheduled_at)::float8 as s, scheduled_at - created_at as ahead from cron_run)
      select percentile_cont(0.5) within group (order by s) as p50, percentile_cont(0.99) within group (order by s) as p99,
        max(s) as max, min(extract(epoch from ahead))::float8 as planned from late`
    const answer = await fetch(origin)
    const times = ((await answer.json()) as ReadonlyArray<number>)
      .map((time) => (time - at.getTime()) / 1000)
      .sort((a, b) => a - b)
    if (times.length !== jobs) throw new Error(`the app was called ${times.length} times`)
    const received = (share: number) => times[Math.ceil(times.length * share) - 1] ?? Number.NaN
    return { ...row, floor, r50: received(0.5), r99: received(0.99) }
  } finally {
    child.kill()
    fs.rmSync(dataDir, { recursive: true, force: true })
  }
}

export const crons = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  const rounds: Array<Awaited<ReturnType<typeof once>>> = []
  for (let round = 0; round < 6; round++) rounds.push(await once(url, sql))
  await sql.end()
  // The first round is for the compilers of Node, as in a process that has run for a while.
  const warm = rounds.slice(1)
  const of = (pick: (round: (typeof rounds)[number]) => number) => {
    const values = warm.map(pick)
    return { value: median(values), unit: "s", note: spread(values) }
  }
  return [
    { name: "planned before their time, at least", ...of(({ planned }) => planned) },
    { name: "10,000 runs begun, p50", ...of(({ p50 }) => p50) },
    { name: "10,000 runs begun, p99", ...of(({ p99 }) => p99), aim: "<= 2" },
    { name: "10,000 requests at the app, p50", ...of(({ r50 }) => r50) },
    { name: "10,000 requests at the app, p99", ...of(({ r99 }) => r99), aim: "<= 2" },
    { name: "Node's client alone, 10,000 requests", ...of(({ floor }) => floor) }
  ]
}
