/** Alerts that fire because of what happens to real servers: measured, evaluated and told by a whole control plane. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connectionString } from "#test/setup/shown.ts"

const project = "/v1/orgs/main/projects/shop"
/** Bytes. */
const mostFilled = 1e9

layer(testPlane({}, { SVC_METRICS_SECONDS: "5" }), { excludeTestServices: true, timeout: "5 minutes" })(
  "alerts about what really happens",
  (it) => {
    it.effect(
      "fire when a queue grows, a processor spins, a disk fills and a database is stopped",
      () =>
        Effect.gen(function* () {
          const { call, dataDir } = yield* Plane
          yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
          const queue = yield* call("POST", `${project}/queues`, { body: { name: "jobs" } })
          const made = yield* call("POST", `${project}/database`)
          assert.strictEqual(made.status, 201, made.text)
          const url = (yield* connectionString(made, `${project}/database/rotate`)).replace(/\?.*/, "")
          const databaseId = (yield* call("GET", `${project}/database`)).body.id
          const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
          const sql = yield* Effect.acquireRelease(
            Effect.sync(() =>
              postgres(url, { ssl: { ca }, max: 2, connect_timeout: 60, onnotice: () => {} })
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
            processor: yield* alert("cpu.percent", 20),
            disk: yield* alert("storage.capacity", 100),
            stopped: yield* alert("database.unavailable", null)
          }
          const state = (path: string, wanted: string) =>
            Effect.map(
              untilAnswer(call("GET", path), ({ body }) => body.state === wanted),
              ({ body }) => body
            )
          /** The first values are in, and good. */
          const before = yield* state(alertOf.disk, "ok")
          yield* state(alertOf.backlog, "ok")
          yield* state(alertOf.stopped, "ok")

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
          // By the server: a request to cancel has a connection of its own, whose end nobody can wait for.
          yield* Effect.promise(
            () => sql`select pg_cancel_backend(pid) from pg_stat_activity
              where state = 'active' and query like '%100000000000%' and pid <> pg_backend_pid()`
          )
          yield* Effect.promise(() => spinning.catch(() => {}))

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
        }).pipe(Effect.scoped),
      600_000
    )
  }
)
