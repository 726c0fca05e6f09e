import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Access, digestOf } from "#src/access/Access.ts"
import { bootstrap, CredentialsNotKept, Keeper, known, reissue } from "#src/access/bootstrap.ts"
import { AppConfig } from "#src/config.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"

const Fixture = Access.layer.pipe(Layer.provideMerge(testDb()), Layer.provideMerge(AppConfig.layerWith({})))

layer(Fixture, { excludeTestServices: true })("a first start that cannot put its tokens anywhere", (it) => {
  it.effect("leaves the store empty for the next one", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const failed = yield* bootstrap.pipe(
        Effect.provideService(Keeper, () => new CredentialsNotKept({ message: "the disk is full" })),
        Effect.flip
      )
      assert.strictEqual(failed.message, "the disk is full")
      for (const table of ["organization", "account", "member", "api_key", "session"])
        assert.strictEqual((yield* sql.unsafe(`select from ${table}`)).length, 0, table)
      assert.isDefined(yield* bootstrap)
    })
  )
})

layer(Fixture, { excludeTestServices: true })("lost credentials", (it) => {
  it.effect("are made anew for the first owner, on record; the store says which tokens it knows", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const first = (yield* bootstrap)!
      assert.isUndefined(yield* reissue("nobody"))
      const kept: Array<string> = []
      const second = (yield* Effect.provideService(reissue("main"), Keeper, ({ session }) =>
        Effect.sync(() => void kept.push(Redacted.value(session)))
      ))!
      assert.deepStrictEqual(kept, [Redacted.value(second.session)])
      const access = yield* Access
      const identity = Option.getOrThrow(
        yield* access.identify({ kind: "session", digest: digestOf(kept[0]!) }, "main", "api")
      )
      assert.strictEqual(identity.organization?.role, "owner")
      const audited = yield* sql`select operation from audit_log`
      assert.deepStrictEqual(
        audited.map((row) => ({ ...row })),
        [{ operation: "admin.credentials" }]
      )

      yield* sql`update session set expires_at = now() where digest = ${digestOf(kept[0]!)}`
      yield* sql`update api_key set revoked_at = now() where digest = ${digestOf(Redacted.value(first.apiKey))}`
      const tokens = [first, second].flatMap(({ apiKey, session }) => [
        Redacted.value(apiKey),
        Redacted.value(session)
      ])
      assert.sameMembers(
        [...(yield* known([...tokens, "svc_unknown", "'; drop table session; --"]))],
        [Redacted.value(first.session), Redacted.value(second.apiKey)]
      )
    })
  )
})

layer(Fixture, { excludeTestServices: true })("the first start", (it) => {
  it.effect(
    "of processes that start at once one makes the owner and the key, and no token is stored in clear",
    () =>
      Effect.gen(function* () {
        const access = yield* Access
        const { engine: sql } = yield* Db
        const starts = yield* Effect.forEach(Array.from({ length: 5 }), () => bootstrap, {
          concurrency: "unbounded"
        })
        const made = starts.filter((start) => start !== undefined)
        assert.strictEqual(made.length, 1)
        assert.isUndefined(yield* bootstrap)
        const [apiKey, session] = [Redacted.value(made[0]!.apiKey), Redacted.value(made[0]!.session)]
        assert.match(apiKey, /^svc_[0-9a-f]{40}$/)

        const identify = (kind: "key" | "session", token: string) =>
          Effect.map(
            access.identify({ kind, digest: digestOf(token) }, "main", "api"),
            (identity) => Option.getOrThrow(identity).organization
          )
        const byKey = yield* identify("key", apiKey)
        assert.deepStrictEqual([byKey?.role, byKey?.billingStatus], ["admin", "active"])
        assert.strictEqual((yield* identify("session", session))?.role, "owner")

        for (const table of ["organization", "account", "member", "api_key", "session"]) {
          const rows = yield* sql.unsafe(`select t::text as row from ${table} t`)
          assert.strictEqual(rows.length, 1, table)
          for (const secret of [apiKey.slice(8), session]) {
            assert.notInclude(JSON.stringify(rows), secret)
            assert.notInclude(JSON.stringify(rows), Buffer.from(secret).toString("hex"))
          }
        }
      })
  )
})
