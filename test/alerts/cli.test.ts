/** `svc alerts`, as people type them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("svc alerts", (it) => {
  it.effect(
    "sets, shows, silences, tells the history and deletes",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
          const done = yield* svc([...args])
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done.stdout
        })
        yield* ok(["projects", "create", "shop"])
        assert.strictEqual((yield* svc(["alerts", "set", "shop", "Disk full"])).code, 2)
        yield* ok([
          ...["alerts", "set", "shop", "Disk full", "--signal", "storage.capacity"],
          ...["--severity", "critical", "--mail", "admins", "--webhook"]
        ])
        const set = ["alerts", "set", "shop", "Disk full", "--threshold", "95", "--for", "300", "--json"]
        const changed = JSON.parse(yield* ok(set))
        assert.deepInclude(changed, { threshold: 95, severity: "critical" })
        assert.deepInclude(changed.condition, { signal: "storage.capacity", durationSeconds: 300 })
        assert.deepStrictEqual(
          changed.channels.map(({ kind }: { kind: string }) => kind),
          ["dashboard", "mail", "webhook"]
        )
        assert.match(yield* ok(["alerts", "ls", "shop"]), /Disk full +no_data +critical +storage\.capacity/)
        assert.include(yield* ok(["alerts", "get", "shop", "Disk full"]), "at or above 95 % for 300 s")
        yield* ok(["alerts", "silence", "shop", "Disk full", "--for", "2h", "--reason", "Works on it"])
        assert.include(yield* ok(["alerts", "get", "shop", "Disk full"]), "Works on it")
        assert.strictEqual((yield* svc(["alerts", "silence", "shop", "Disk full", "--for", "soon"])).code, 2)
        assert.notStrictEqual((yield* svc(["alerts", "ack", "shop", "Disk full"])).code, 0)
        assert.match(yield* ok(["alerts", "history", "shop", "Disk full"]), /silenced .*Works on it/)
        yield* ok(["alerts", "rm", "shop", "Disk full", "--yes"])
      }),
    180_000
  )
})
