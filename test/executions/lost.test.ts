/** An engine that dies: what ran on it counts as lost in time, and is cleaned up when the engine is back. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import {
  anHourAgo,
  Containers,
  create,
  ended,
  executionPlane,
  isRunning,
  makeProject,
  printed,
  read,
  until,
  untilReason
} from "./world.ts"

layer(executionPlane({ graceMs: 1_000 }), {
  excludeTestServices: true,
  timeout: "3 minutes"
})("an engine that dies", (it) => {
  it.effect(
    "takes its executions along after a deadline; what still runs is removed when it is back",
    () =>
      Effect.gen(function* () {
        yield* makeProject
        const engine = yield* Containers
        const looping = { command: sh("while :; do busybox sleep 1; done"), env: { PATH: "/bin" } }
        const lost = yield* create(looping)
        yield* isRunning(lost)
        yield* Effect.promise(() => engine.kill())
        yield* anHourAgo(lost, "lost_since")
        const gone = yield* until(lost, ({ finishedAt }) => finishedAt !== null, "lost")
        assert.deepStrictEqual([gone.status, gone.errorCode, gone.exitCode], ["failed", "host_lost", null])
        yield* Effect.promise(() => engine.restart())
        assert.strictEqual((yield* ended(lost)).status, "failed")
        assert.strictEqual(engine.podman("ps", "-a", "-q", "--filter", `label=svc.execution=${lost}`), "")
      }),
    300_000
  )

  it.effect(
    "is waited for by what has not begun, which says so and runs once it is back",
    () =>
      Effect.gen(function* () {
        const engine = yield* Containers
        yield* Effect.promise(() => engine.kill())
        const early = yield* create({ command: sh("echo here") })
        const told = yield* untilReason(early, "EngineUnreachable")
        assert.strictEqual(told["status"], "false")
        assert.include(String(told["message"]), "does not answer")
        assert.strictEqual((yield* read(early)).body.status, "starting")
        yield* Effect.promise(() => engine.restart())
        assert.strictEqual((yield* ended(early)).status, "succeeded")
        assert.strictEqual(yield* printed(early), "here\n")
        assert.deepInclude(yield* untilReason(early, "Converged"), { status: "true" })
      }),
    300_000
  )

  it.effect(
    "and an image that was removed after it was fetched is fetched again",
    () =>
      Effect.gen(function* () {
        const engine = yield* Containers
        const { sql } = yield* Plane
        yield* Effect.promise(() => engine.kill())
        const id = yield* create({ command: sh("echo here") })
        yield* untilReason(id, "EngineUnreachable")
        yield* sql(`update execution set image_id = '${"0".repeat(64)}' where uid = '${id}'`)
        yield* Effect.promise(() => engine.restart())
        const done = yield* ended(id)
        assert.deepStrictEqual([done.status, done.error], ["succeeded", null])
        assert.strictEqual(yield* printed(id), "here\n")
      }),
    300_000
  )
})
