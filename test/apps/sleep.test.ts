/** An app of a project that scales to zero: paused, stopped, and woken by requests, once for all of them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Containers } from "#test/executions/world.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  answerOf,
  appPlane,
  containersOf,
  deploy,
  makeShop,
  readApp,
  readInstances,
  ready,
  server
} from "./world.ts"

layer(appPlane({ lookMs: 500 }), { excludeTestServices: true, timeout: "3 minutes" })(
  "a sleeping app",
  (it) => {
    it.effect(
      "is paused, then stopped, and answers all first requests by one start",
      () =>
        Effect.gen(function* () {
          const { sql, call } = yield* Plane
          const { podman } = yield* Containers
          const { path, host } = yield* makeShop("sleeper", "scale-to-zero")
          yield* ready(path, yield* deploy(path, server("up")))
          assert.strictEqual(yield* answerOf(host), "200 up")
          const app = yield* readApp(path)
          /** As if nobody had asked for anything for two hours. */
          const longAgo = Effect.gen(function* () {
            yield* sql(`update edge_request_minute set minute = minute - interval '2 hours'
            where environment_uid = (select environment_uid from app where uid = '${app.id}')`)
            yield* sql(`update app set active_at = now() - interval '2 hours' where uid = '${app.id}'`)
            yield* sql(`update work set due_at = now(), rank = now() where uid = '${app.id}'`)
          })
          const asleep = (power: string) =>
            eventually(`it is ${power}`, Effect.andThen(longAgo, readApp(path)), (now) => now.power === power)
          yield* call("PATCH", `${path}/app`, { body: { idle: { stopSeconds: 604_800 } } })
          yield* asleep("paused")
          const [name = ""] = yield* containersOf(`svc.app=${app.id}`)
          assert.strictEqual(podman("inspect", "--format", "{{.State.Status}}", name), "paused")
          assert.strictEqual((yield* readApp(path)).status, "ready")
          assert.strictEqual(yield* answerOf(host), "200 up")
          assert.strictEqual((yield* readApp(path)).power, "awake")
          assert.deepStrictEqual(yield* containersOf(`svc.app=${app.id}`), [name])

          yield* call("PATCH", `${path}/app`, { body: { idle: { stopSeconds: 60 } } })
          yield* asleep("stopped")
          yield* eventually("nothing runs", containersOf(`svc.app=${app.id}`), (names) => names.length === 0)
          const before = (yield* readInstances(path)).length
          const answers = yield* Effect.all(
            Array.from({ length: 100 }, () => answerOf(host)),
            {
              concurrency: "unbounded"
            }
          )
          assert.deepStrictEqual([...new Set(answers)], ["200 up"])
          assert.strictEqual((yield* readInstances(path)).length, before + 1)

          // A run of a cron job wakes it too, and is sent to the instance itself.
          yield* call("PATCH", `${path}/app`, { body: { idle: { stopSeconds: 604_800 } } })
          yield* asleep("paused")
          const cron = yield* call("POST", `${path}/crons`, {
            body: { name: "nightly", schedule: "0 0 1 1 *", target: { kind: "http", path: "/index.html" } }
          })
          assert.strictEqual(cron.status, 201, cron.text)
          const run = yield* call("POST", `${path}/crons/${cron.body.id}/trigger`)
          assert.include([200, 201, 202], run.status, run.text)
          const runs = yield* eventually(
            "the app was called",
            call("GET", `${path}/crons/${cron.body.id}/runs`),
            ({ body }) =>
              (body.items ?? body)[0]?.attempts?.length > 0 || (body.items ?? body)[0]?.statusCode != null
          )
          // The server knows no POST: that it says so is an answer of the app.
          assert.match(runs.text, /"statusCode":(405|501|404|400)/)
          assert.strictEqual((yield* readApp(path)).power, "awake")
        }),
      300_000
    )
  }
)
