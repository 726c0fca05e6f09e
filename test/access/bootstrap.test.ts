import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Access, digestOf } from "#src/access/Access.ts"
import { bootstrap } from "#src/access/bootstrap.ts"
import { AppConfig } from "#src/config.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"

const Fixture = Access.layer.pipe(Layer.provideMerge(testDb()), Layer.provideMerge(AppConfig.layerWith({})))

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
            access.identify({ kind, digest: digestOf(token) }, "main"),
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
