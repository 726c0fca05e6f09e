/** Alerts that fire because of what happens to real servers: measured, evaluated and told by a whole control plane. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import postgres from "postgres"
import { untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { connectionString } from "#test/setup/shown.ts"

const project = "/v1/orgs/main/projects/shop"
/** Bytes. */
const mostFilled = 1e9
/** Of the application; the smallest database takes some twenty. */
const sessions = 12
const causes = [
  ["database.connections", 8, "Database"],
  ["database.pool_saturation", 40, "Database"],
  ["database.pool_waiting", 1, "Database"],
  ["database.queries_per_second", 1, "Database"],
  ["database.query_latency_avg_ms", 50, "Database"],
  ["cpu.pressure", 5, "Database"],
  ["queue.backlog_messages", 4, "Queue"],
  ["queue.oldest_message_age_seconds", 5, "Queue"],
  ["cron.failures", 1, "Cron"],
  ["http.requests", 7, "Environment"],
  ["http.errors", 7, "Environment"]
] as const
/** What is so all the time: their alerts fire as soon as something is measured. */
const standing = [
  ["memory.used_bytes", 1_000_000],
  ["disk.used_bytes", 1_000_000],
  ["disk.limit_bytes", 1],
  ["runtime.uptime_seconds", 1]
] as const

layer(testPlane({}, { SVC_METRICS_SECONDS: "5" }), { excludeTestServices: true, timeout: "5 minutes" })(
  "alerts about what really happens",
  (it) => {
    it.effect(
      "fire when a queue grows, a processor spins, a disk fills, sessions wait, calls fail and a database is stopped",
      () =>
        Effect.gen(function* () {
          const { call, dataDir, databaseUrl, sql: store } = yield* Plane
          yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
          const queue = yield* call("POST", `${project}/queues`, { body: { name: "jobs" } })
          const made = yield* call("POST", `${project}/database`)
          assert.strictEqual(made.status, 201, made.text)
          const url = (yield* connectionString(made, `${project}/database/rotate`)).replace(/\?.*/, "")
          const databaseId = (yield* call("GET", `${project}/database`)).body.id
          const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
          const sql = yield* Effect.acquireRelease(
            Effect.sync(() =>
              postgres(url, { ssl: { ca }, max: sessions, connect_timeout: 60, onnotice: () => {} })
            ),
            (client) => Effect.promise(() => client.end({ timeout: 1 }))
          )

          const alert = Effect.fn(function* (signal: string, threshold: number | null, scope: object = {}) {
            const { status, text, body } = yield* call("POST", `${project}/alerts`, {
              body: {
                name: signal,
                severity: "critical",
                scope,
                condition: { signal, threshold, durationSeconds: 0 }
              }
            })
            assert.strictEqual(status, 201, text)
            return `${project}/alerts/${body.id}`
          })
          const alertOf = {
            backlog: yield* alert("queue.backlog", 3, { queue: "jobs" }),
            processor: yield* alert("cpu.percent", 5),
            disk: yield* alert("storage.capacity", 100),
            stopped: yield* alert("database.unavailable", null)
          }
          /** By what is done below, with the kind of the resource that they are to name. */
          const further = yield* Effect.forEach(causes, ([signal, threshold, kind]) =>
            Effect.map(alert(signal, threshold), (path) => ({ signal, kind, path }))
          )
          const state = (path: string, wanted: string) =>
            Effect.map(
              untilAnswer(call("GET", path), ({ body }) => body.state === wanted),
              ({ body }) => body
            )
          /** The first values are in, and good. */
          const before = yield* state(alertOf.disk, "ok")
          yield* state(alertOf.backlog, "ok")
          yield* state(alertOf.stopped, "ok")

          for (const [signal, threshold] of standing) {
            const { incident } = yield* state(
              yield* alert(signal, threshold, { environment: "production", database: "main" }),
              "firing"
            )
            assert.strictEqual(incident.resource.id, databaseId, signal)
          }
          for (const { path, signal } of further)
            assert.notStrictEqual((yield* call("GET", path)).body.state, "firing", signal)

          const cron = yield* call("POST", `${project}/crons`, {
            body: {
              ...{ name: "broken", schedule: "0 0 1 1 *", target: { kind: "http", path: "/" } },
              retry: { maxAttempts: 1 }
            }
          })
          assert.strictEqual(cron.status, 201, cron.text)
          // Where nobody answers.
          yield* call("PATCH", `${project}/environments/production`, {
            body: { origin: "http://127.0.0.1:9" }
          })
          const run = yield* call("POST", `${project}/crons/${cron.body.id}/trigger`)
          assert.strictEqual(run.status, 202, run.text)
          // What an edge tells of requests that got no answer, for as long as this test may take.
          yield* answeringNode(databaseUrl)
          yield* store(`insert into edge_request_minute (org_id, environment_uid, minute, status_class, requests, bytes_in,
              bytes_out, duration_ms, durations)
            select s.org_id, s.environment_uid, date_trunc('minute', now()) + n * interval '1 minute', 0, 7, 0, 0, 0, '{}'
            from edge_site s cross join generate_series(-2, 6) n
            join resource e on e.name = 'production' where e.uid = s.environment_uid`)

          const messages = [1, 2, 3, 4].map((body) => ({ body }))
          yield* call("POST", `${project}/queues/${queue.body.id}/messages`, { body: { messages } })
          // A little more than is in use; others use the same disk, and may free some of it meanwhile.
          const { blocks, bsize } = fs.statfsSync(dataDir)
          const threshold = before.measured.value + (64e6 / (blocks * bsize)) * 100
          yield* call("PATCH", alertOf.disk, {
            body: { condition: { signal: "storage.capacity", threshold, durationSeconds: 0 } }
          })
          const spinning = sql`select count(*) from generate_series(1, 100000000000)`.execute()
          spinning.catch(() => {})
          // Sessions that wait for each other, and statements that take their time, until the server is told to end them.
          const busy = [
            ...Array.from({ length: 3 }, () => sql`select pg_advisory_lock(7), pg_sleep(600)`.execute()),
            ...Array.from({ length: 6 }, () =>
              sql`do $$ begin loop perform pg_sleep(1); end loop; end $$`.execute()
            )
          ]
          for (const one of busy) one.catch(() => {})
          const slow = yield* Effect.forkScoped(
            Effect.forever(Effect.promise(() => sql`select pg_sleep(0.1)`.catch(() => {})))
          )
          let written = 0
          const fill = Effect.sync(() => {
            if (written >= mostFilled) return
            written += 32e6
            fs.appendFileSync(path.join(dataDir, "filler"), Buffer.alloc(32e6, 1))
          })
          const full = yield* untilAnswer(
            Effect.andThen(fill, call("GET", alertOf.disk)),
            ({ body }) => body.state === "firing"
          )
          assert.isAtLeast(full.body.incident.value, full.body.threshold)
          fs.rmSync(path.join(dataDir, "filler"))
          assert.strictEqual((yield* state(alertOf.processor, "firing")).incident.resource.id, databaseId)
          assert.strictEqual((yield* state(alertOf.backlog, "firing")).incident.resource.name, "jobs")
          for (const { signal, kind, path } of further) {
            const { incident } = yield* state(path, "firing")
            assert.strictEqual(incident.resource.kind, kind, signal)
          }
          yield* Fiber.interrupt(slow)
          // By the server: a request to cancel has a connection of its own, whose end nobody can wait for.
          yield* Effect.promise(
            () => sql`select pg_cancel_backend(pid) from pg_stat_activity
              where state = 'active' and pid <> pg_backend_pid() and datname = current_database()
                and usename = current_user`
          )
          yield* Effect.promise(() => Promise.allSettled([spinning, ...busy]))

          // The engine would start it again.
          const paused = yield* call("POST", `/v1/orgs/main/resources/${databaseId}/pause`, {
            body: { reason: "It is to stay stopped" }
          })
          assert.strictEqual(paused.status, 202, paused.text)
          const pidFile = path.join(dataDir, "databases", databaseId, "data", "postmaster.pid")
          process.kill(Number(fs.readFileSync(pidFile, "utf8").split("\n", 1)[0]), "SIGKILL")
          yield* call("POST", `/v1/orgs/main/resources/${databaseId}/retry`)
          const stopped = yield* state(alertOf.stopped, "firing")
          assert.deepInclude(stopped.incident.resource, { id: databaseId, kind: "Database" })
          const history = yield* call("GET", `${alertOf.stopped}/history`)
          assert.strictEqual(history.body.items[0].change, "firing")

          // It is started again, which is told of, and that it is back.
          const restarts = yield* alert("runtime.restarts", 1)
          yield* call("POST", `/v1/orgs/main/resources/${databaseId}/resume`)
          const restarted = yield* state(restarts, "firing")
          assert.strictEqual(restarted.incident.resource.id, databaseId)
        }).pipe(Effect.scoped),
      600_000
    )
  }
)
