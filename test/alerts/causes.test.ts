/**
 * Alerts that fire because of what happens to real servers: measured, evaluated and told by a whole control plane. Whole
 * rounds provoke each signal but six: `disk.read_iops` and `disk.write_iops` need a kernel that counts requests to disks
 * for control groups of version 2, and nothing measures the percentiles of latency. By recorded values all of them fire
 * in `evaluation.store.test.ts`.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { createClient } from "redis"
import { campaign } from "#test/campaigns/campaign.ts"
import { untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { connectionString } from "#test/setup/shown.ts"
import { eventually } from "#test/setup/wait.ts"

/** Bytes. */
const mostFilled = 1e9
/** Of the application; the smallest database takes some twenty. */
const sessions = 12

interface Expected {
  readonly signal: string
  readonly threshold: number | null
  /** Of the resource that the alert is to name. */
  readonly kind: "Cache" | "Cron" | "Database" | "Environment" | "Queue"
}

/** What is so all the time: their alerts fire as soon as something is measured. */
const standing: ReadonlyArray<Expected> = [
  { signal: "memory.used_bytes", threshold: 1_000_000, kind: "Database" },
  { signal: "memory.limit_bytes", threshold: 1_000_000, kind: "Database" },
  { signal: "disk.used_bytes", threshold: 1_000_000, kind: "Database" },
  { signal: "disk.limit_bytes", threshold: 1, kind: "Database" },
  { signal: "runtime.uptime_seconds", threshold: 1, kind: "Database" }
]
/** Sessions and messages that wait, and calls that fail: counted, so that no threshold depends on how fast the machine is. */
const counted: ReadonlyArray<Expected> = [
  { signal: "queue.backlog", threshold: 3, kind: "Queue" },
  { signal: "queue.backlog_messages", threshold: 4, kind: "Queue" },
  { signal: "queue.oldest_message_age_seconds", threshold: 5, kind: "Queue" },
  { signal: "cron.failures", threshold: 1, kind: "Cron" },
  { signal: "http.requests", threshold: 7, kind: "Environment" },
  { signal: "http.errors", threshold: 7, kind: "Environment" },
  { signal: "database.connections", threshold: 8, kind: "Database" },
  { signal: "database.pool_saturation", threshold: 40, kind: "Database" },
  { signal: "database.pool_waiting", threshold: 1, kind: "Database" }
]
/** Statements that keep a processor busy, or take long: whole rounds only. */
const busy: ReadonlyArray<Expected> = [
  { signal: "cpu.percent", threshold: 5, kind: "Database" },
  { signal: "cpu.pressure", threshold: 5, kind: "Database" },
  { signal: "database.queries_per_second", threshold: 1, kind: "Database" },
  { signal: "database.query_latency_avg_ms", threshold: 50, kind: "Database" }
]
/** Bytes a second through a cache that is written and read without end. */
const pumped: ReadonlyArray<Expected> = [
  { signal: "network.receive_bytes", threshold: 100_000, kind: "Cache" },
  { signal: "network.transmit_bytes", threshold: 100_000, kind: "Cache" }
]

/** A project of the round with a database, and alerts of it. */
const makeWorld = Effect.fnUntraced(function* (slug: string) {
  const { call } = yield* Plane
  const project = `/v1/orgs/main/projects/${slug}`
  const { body: shop } = yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug } })
  const made = yield* call("POST", `${project}/database`)
  assert.strictEqual(made.status, 201, made.text)
  const url = (yield* connectionString(made, `${project}/database/rotate`)).replace(/\?.*/, "")
  const databaseId: string = (yield* call("GET", `${project}/database`)).body.id
  const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
  const sql = yield* Effect.acquireRelease(
    Effect.sync(() => postgres(url, { ssl: { ca }, max: sessions, connect_timeout: 60, onnotice: () => {} })),
    (client) => Effect.promise(() => client.end({ timeout: 1 }))
  )
  const alert = Effect.fn(function* (signal: string, threshold: number | null) {
    const condition = { signal, threshold, durationSeconds: 0 }
    const { status, text, body } = yield* call("POST", `${project}/alerts`, {
      body: { name: signal, severity: "critical", scope: {}, condition }
    })
    assert.strictEqual(status, 201, text)
    return `${project}/alerts/${body.id}`
  })
  const alertsOf = (expected: ReadonlyArray<Expected>) =>
    Effect.forEach(expected, (one) => Effect.map(alert(one.signal, one.threshold), (at) => ({ ...one, at })))
  const state = (at: string, wanted: string) =>
    Effect.map(
      untilAnswer(call("GET", at), ({ body }) => body.state === wanted),
      ({ body }) => body
    )
  const fires = Effect.fn(function* (alerts: ReadonlyArray<Expected & { readonly at: string }>) {
    for (const { at, signal, kind } of alerts) {
      const { incident } = yield* state(at, "firing")
      assert.strictEqual(incident.resource.kind, kind, signal)
    }
  })
  return { call, project, projectId: String(shop.id), databaseId, ca, sql, alert, alertsOf, state, fires }
})
type World = Effect.Success<ReturnType<typeof makeWorld>>

/** Four messages that nobody takes, a call that fails, and requests that the edge tells of as unanswered. */
const neglect = Effect.fnUntraced(function* ({ call, project, projectId }: World) {
  const { databaseUrl, sql: store } = yield* Plane
  const queue = yield* call("POST", `${project}/queues`, { body: { name: "jobs" } })
  const messages = [1, 2, 3, 4].map((body) => ({ body }))
  yield* call("POST", `${project}/queues/${queue.body.id}/messages`, { body: { messages } })
  const cron = yield* call("POST", `${project}/crons`, {
    body: {
      ...{ name: "broken", schedule: "0 0 1 1 *", target: { kind: "http", path: "/" } },
      retry: { maxAttempts: 1 }
    }
  })
  assert.strictEqual(cron.status, 201, cron.text)
  // Where nobody answers.
  yield* call("PATCH", `${project}/environments/production`, { body: { origin: "http://127.0.0.1:9" } })
  const run = yield* call("POST", `${project}/crons/${cron.body.id}/trigger`)
  assert.strictEqual(run.status, 202, run.text)
  yield* answeringNode(databaseUrl)
  // For as long as this test may take.
  yield* store(`insert into edge_request_minute (org_id, environment_uid, minute, status_class, requests, bytes_in,
      bytes_out, duration_ms, durations)
    select e.org_id, e.uid, date_trunc('minute', now()) + n * interval '1 minute', 0, 7, 0, 0, 0, '{}'
    from resource e cross join generate_series(-2, 6) n
    where e.kind = 'Environment' and e.name = 'production' and e.project_id = '${projectId}'`)
})

/** Holds what it began until the scope closes. The server ends it: requests to cancel have connections of their own. */
const begin = Effect.fnUntraced(function* (
  { sql }: World,
  statements: ReadonlyArray<() => Promise<unknown>>
) {
  const begun = statements.map((statement) => statement().catch(() => {}))
  const cancel = () =>
    sql`select pg_cancel_backend(pid) from pg_stat_activity
      where state = 'active' and pid <> pg_backend_pid() and datname = current_database() and usename = current_user`
  yield* Effect.addFinalizer(() => Effect.promise(() => cancel().then(() => Promise.all(begun))))
})

/** Three that wait for each other, and six that are idle in a statement. */
const waitingSessions = ({ sql }: World) => [
  ...Array.from({ length: 3 }, () => () => sql`select pg_advisory_lock(7), pg_sleep(600)`.execute()),
  ...Array.from(
    { length: 6 },
    () => () => sql`do $$ begin loop perform pg_sleep(1); end loop; end $$`.execute()
  )
]

/** The real disk of this machine: others use it too, and may free some of it meanwhile. */
const fillDisk = Effect.fnUntraced(function* ({ call, alert, state }: World) {
  const { dataDir } = yield* Plane
  const at = yield* alert("storage.capacity", 100)
  const before = yield* state(at, "ok")
  const { blocks, bsize } = fs.statfsSync(dataDir)
  const threshold = before.measured.value + (64e6 / (blocks * bsize)) * 100
  const condition = { signal: "storage.capacity", threshold, durationSeconds: 0 }
  yield* call("PATCH", at, { body: { condition } })
  const filler = path.join(dataDir, "filler")
  yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(filler, { force: true })))
  let written = 0
  const fill = Effect.sync(() => {
    if (written >= mostFilled) return
    written += 32e6
    fs.appendFileSync(filler, Buffer.alloc(32e6, 1))
  })
  const full = yield* untilAnswer(
    Effect.andThen(fill, call("GET", at)),
    ({ body }) => body.state === "firing"
  )
  assert.isAtLeast(full.body.incident.value, full.body.threshold)
})

/** A session that keeps 64 MB, of which half would do. */
const fillMemory = Effect.fnUntraced(function* (world: World) {
  const { call, databaseId, sql, alert, fires } = world
  const listed = yield* call("GET", `/v1/orgs/main/resources/${databaseId}/metrics`)
  const now = (name: string): number =>
    listed.body.measurements.find((one: { readonly measurement: string }) => one.measurement === name).value
  const threshold = now("memory.pressure") + (32e6 / now("memory.limit_bytes")) * 100
  const expected = { signal: "memory.pressure", threshold, kind: "Database" } as const
  const at = yield* alert(expected.signal, threshold)
  yield* begin(world, [
    () => sql`do $$ declare kept text := repeat('x', 64000000); begin perform pg_sleep(600); end $$`.execute()
  ])
  yield* fires([{ ...expected, at }])
})

/** Writes and reads of a cache without end. */
const pumpCache = Effect.fnUntraced(function* ({ call, project, ca, alertsOf, fires }: World) {
  const made = yield* call("POST", `${project}/caches`, {
    body: { name: "sessions", sku: "cache-n1", region: "local" }
  })
  assert.strictEqual(made.status, 201, made.text)
  const url = yield* connectionString(made, `${project}/caches/${made.body.id}/credentials/rotate`)
  const client = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const client = createClient({ url, socket: { tls: true, ca, reconnectStrategy: false } })
      client.on("error", () => undefined)
      return await client.connect()
    }),
    (client) => Effect.sync(() => client.destroy())
  )
  const content = "x".repeat(100_000)
  const pump = Effect.promise(() => client.set("page", content).then(() => client.get("page")))
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(pump, Effect.sleep("20 millis"))))
  yield* fires(yield* alertsOf(pumped))
})

/** A file where the log of the database is kept, until the alert about it fires: what comes to the log then cannot be stored. */
const breakArchive = Effect.fnUntraced(function* ({ databaseId, sql, alertsOf, fires }: World) {
  const { dataDir } = yield* Plane
  const found = Effect.sync(() => fs.globSync(path.join(dataDir, "backups/**", databaseId, "wal")))
  const [folder = ""] = yield* eventually("the log is kept", found, (folders) => folders.length === 1)
  const alerts = yield* alertsOf([{ signal: "backup.archive_failed", threshold: 1, kind: "Database" }])
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      fs.renameSync(folder, `${folder}-away`)
      fs.writeFileSync(folder, "")
    }),
    () =>
      Effect.sync(() => {
        fs.rmSync(folder)
        fs.renameSync(`${folder}-away`, folder)
      })
  )
  // More than one part of the log.
  yield* Effect.promise(
    () => sql`create table many as select repeat('x', 1000) from generate_series(1, 20000)`
  )
  yield* fires(alerts)
})

/** It stays stopped: the engine would start it again. */
const stopDatabase = Effect.fnUntraced(function* ({ call, databaseId, state }: World, at: string) {
  const { dataDir } = yield* Plane
  const paused = yield* call("POST", `/v1/orgs/main/resources/${databaseId}/pause`, {
    body: { reason: "It is to stay stopped" }
  })
  assert.strictEqual(paused.status, 202, paused.text)
  const pidFile = path.join(dataDir, "databases", databaseId, "data", "postmaster.pid")
  process.kill(Number(fs.readFileSync(pidFile, "utf8").split("\n", 1)[0]), "SIGKILL")
  yield* call("POST", `/v1/orgs/main/resources/${databaseId}/retry`)
  const stopped = yield* state(at, "firing")
  assert.deepInclude(stopped.incident.resource, { id: databaseId, kind: "Database" })
  const history = yield* call("GET", `${at}/history`)
  assert.strictEqual(history.body.items[0].change, "firing")
})

layer(testPlane({}, { SVC_METRICS_SECONDS: "5" }), { excludeTestServices: true, timeout: "5 minutes" })(
  "alerts about what really happens",
  (it) => {
    campaign(
      it.effect,
      "signals",
      "alerts fire when a queue grows, sessions wait, calls fail and a database is stopped",
      { roundMs: 900_000 },
      Effect.fnUntraced(function* ({ seed, full }) {
        const world = yield* makeWorld(`shop-${seed}`)
        const { call, databaseId, alert, alertsOf, state, fires, sql } = world
        const provoked = yield* alertsOf([...counted, ...(full ? busy : [])])
        const stopped = yield* alert("database.unavailable", null)
        // The first values are in, and good.
        yield* fires(yield* alertsOf(standing))
        yield* state(stopped, "ok")
        for (const { at, signal } of provoked)
          assert.notStrictEqual((yield* call("GET", at)).body.state, "firing", signal)

        yield* neglect(world)
        const spins = () => sql`select count(*) from generate_series(1, 100000000000)`.execute()
        const slow = Effect.forever(Effect.promise(() => sql`select pg_sleep(0.1)`.catch(() => {})))
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* begin(world, [...waitingSessions(world), ...(full ? [spins] : [])])
            if (full) yield* Effect.forkScoped(slow)
            yield* fires(provoked)
          })
        )
        if (full)
          for (const provoke of [fillMemory, pumpCache, breakArchive, fillDisk])
            yield* Effect.scoped(provoke(world))
        yield* stopDatabase(world, stopped)
        if (!full) return
        // It is started again, which is told of, and that it is back.
        const restarts = yield* alert("runtime.restarts", 1)
        yield* call("POST", `/v1/orgs/main/resources/${databaseId}/resume`)
        const restarted = yield* state(restarts, "firing")
        assert.strictEqual(restarted.incident.resource.id, databaseId)
      })
    )
  }
)
