/** `svc crons` and `svc environments origin`, as people type them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { receiver } from "./receiver.ts"
import { rarely } from "./world.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("svc crons", (it) => {
  it.effect(
    "creates, shows, changes, runs and deletes",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const app = yield* receiver()
        const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
          const done = yield* svc([...args])
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done.stdout
        })
        yield* ok(["projects", "create", "timed"])
        yield* ok(["environments", "origin", "timed", "production", app.origin])
        assert.match(
          yield* ok(["environments", "rotate-secret", "timed", "production"]),
          /^whsec_[0-9a-f]{40}\n$/
        )
        yield* ok(["crons", "create", "timed", "nightly", rarely, "--path", "/jobs", "--attempts", "1"])
        assert.include(yield* ok(["crons", "ls", "timed"]), rarely)
        const run = JSON.parse(yield* ok(["crons", "trigger", "timed", "nightly", "--json"]))
        assert.strictEqual(run.status, "succeeded")
        assert.strictEqual(app.received.length, 1)
        assert.include(yield* ok(["crons", "runs", "timed", "nightly"]), run.id)
        yield* ok(["crons", "off", "timed", "nightly"])
        const shown = JSON.parse(yield* ok(["crons", "get", "timed", "nightly", "--json"]))
        assert.deepStrictEqual([shown.enabled, shown.nextRunAt, shown.retry.maxAttempts], [false, null, 1])
        assert.strictEqual((yield* svc(["crons", "get", "timed", "nope"])).code, 5)
        assert.strictEqual((yield* svc(["crons", "create", "timed", "x1", "* * * * *"])).code, 2)
        yield* ok(["crons", "delete", "timed", "nightly", "--yes"])
      }),
    400_000
  )
})
