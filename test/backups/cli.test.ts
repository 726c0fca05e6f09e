/** `svc backups` and `svc database recovery-points`, as people type them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "10 minutes" })("svc backups", (it) => {
  it.effect(
    "creates with progress, lists, shows what can be restored, and refuses what cannot",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
          const done = yield* svc([...args])
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done
        })
        yield* ok(["projects", "create", "kept"])
        assert.strictEqual((yield* svc(["backups", "ls", "kept"])).code, 5)
        yield* ok(["database", "provision", "kept"])
        const made = yield* ok(["backups", "create", "kept", "--drill", "--timeout", "500"])
        assert.match(made.stdout, /^[0-9a-f-]{36}\n$/)
        assert.match(made.stderr, /backup {2}succeeded/)
        const id = made.stdout.trim()
        const listed: ReadonlyArray<{ readonly id: string; readonly lastProvenAt: string | null }> =
          JSON.parse((yield* ok(["backups", "ls", "kept", "--json"])).stdout)
        assert.isNotNull(listed.find((one) => one.id === id)?.lastProvenAt)
        assert.include((yield* ok(["backups", "ls", "kept"])).stdout, id)
        const points = yield* ok(["database", "recovery-points", "kept"])
        assert.match(points.stdout, /Any moment +\d{4}-.* to \d{4}-/)
        assert.match(points.stdout, /Archiving +works/)

        const refused = yield* svc(["backups", "restore", "kept", "--at", "2020-01-01T00:00:00Z", "--yes"])
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, /pointInTime/)
        assert.strictEqual((yield* svc(["backups", "restore", "kept", "--yes"])).code, 2)
        assert.strictEqual(
          (yield* svc(["backups", "restore", "kept", "--at", "x", "--backup", id, "--yes"])).code,
          2
        )
      }),
    900_000
  )
})
