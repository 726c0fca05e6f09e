/** `svc projects budget`, as people type it. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("svc projects budget", (it) => {
  it.effect(
    "shows a budget, and changes what is named and nothing else",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
          const done = yield* svc(["projects", ...args])
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done.stdout
        })
        yield* ok(["create", "spending"])
        const shown = yield* ok(["budget", "get", "spending"])
        assert.match(shown, /^Cap +none$/m)
        assert.match(shown, /^Alert +at 80 %$/m)
        const set = yield* ok(["budget", "set", "spending", "--cap", "12.5", "--hard-stop"])
        assert.match(set, /^Cap +\$12\.5$/m)
        assert.match(set, /^Left +\$12\.5$/m)
        yield* ok(["budget", "set", "spending", "--alert", "none"])
        const kept = JSON.parse(yield* ok(["budget", "get", "spending", "--json"]))
        assert.deepInclude(kept, { monthlyCapUsd: 12.5, alertThresholdPercent: null, hardStop: true })
        const none = yield* ok(["budget", "set", "spending", "--cap", "none", "--no-hard-stop", "--json"])
        assert.deepInclude(JSON.parse(none), { monthlyCapUsd: null, hardStop: false })
        assert.deepStrictEqual(JSON.parse(yield* ok(["budget", "usage", "spending", "--json"])), {
          items: []
        })
        const backwards = ["budget", "usage", "spending", "--from", "2026-02-01", "--to", "2026-01-01"]
        assert.include((yield* svc(["projects", ...backwards])).stderr, "/to")
        const wrong = yield* svc(["projects", "budget", "set", "spending", "--cap", "much"])
        assert.strictEqual(wrong.code, 2)
        assert.include(wrong.stderr, "--cap")
        assert.strictEqual((yield* svc(["projects", "budget", "get", "nope"])).code, 5)
      }),
    400_000
  )
})
