/** `svc db branch` and `svc db restore`, as people type them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "10 minutes" })("svc db branch", (it) => {
  it.effect(
    "creates, shows, changes, promotes, restores and deletes",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
          const done = yield* svc([...args])
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done
        })
        yield* ok(["projects", "create", "shop"])
        yield* ok(["environments", "create", "shop", "staging"])
        yield* ok(["db", "provision", "shop"])
        const made = yield* ok(["db", "branch", "create", "shop", "copy"])
        assert.match(made.stderr, /copy {2}(queued|copying|hydrating|ready)/)
        assert.match(made.stderr, /copy is ready/)
        assert.match((yield* ok(["db", "branch", "ls", "shop"])).stdout, /copy +production +ready +127/)
        assert.match(
          (yield* ok(["db", "branch", "rotate", "shop", "copy"])).stdout,
          /^postgres:\/\/app:[\w-]+@127\.[\d.]+:\d+\/app\?sslmode=verify-full\n$/
        )
        const never = yield* ok([
          "db",
          "branch",
          "update",
          "shop",
          "copy",
          "--expires-in-days",
          "0",
          "--json"
        ])
        assert.isNull(JSON.parse(never.stdout).expiresAt)
        // Without a terminal nothing that matters is done without being sure.
        assert.strictEqual((yield* svc(["db", "branch", "promote", "shop", "copy"])).code, 2)
        yield* ok(["db", "branch", "promote", "shop", "copy", "--yes"])
        const shown = JSON.parse((yield* ok(["db", "branch", "get", "shop", "copy", "--json"])).stdout)
        assert.deepStrictEqual([shown.status, shown.databaseId], ["promoted", shown.sourceDatabaseId])
        assert.match((yield* ok(["db", "branch", "ls", "shop"])).stdout, /main-before-/)
        yield* ok(["db", "branch", "delete", "shop", "copy", "--yes"])
        assert.strictEqual((yield* svc(["db", "branch", "get", "shop", "copy"])).code, 5)
        assert.strictEqual((yield* svc(["db", "branch", "update", "shop", "copy"])).code, 2)

        // The new history has a backup of its own.
        yield* ok(["backups", "create", "shop"])
        const at = new Date().toISOString()
        yield* Effect.sleep("100 millis")
        const back = yield* ok(["db", "restore", "shop", "--at", at, "--yes"])
        assert.match(back.stderr, /The database is back/)
      }),
    600_000
  )
})
