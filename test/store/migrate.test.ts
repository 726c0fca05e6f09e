import { randomUUID } from "node:crypto"
import { readdirSync } from "node:fs"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import { emptyDatabase } from "#test/setup/database.ts"

const files = readdirSync(new URL("../../src/store/migrations/", import.meta.url)).sort()
const run = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  Effect.flatMap(PgClient.makeClient({ url }), (sql) =>
    Effect.forEach(statements, (text) => sql.unsafe(text))
  ).pipe(Effect.scoped, Effect.provide(Reactivity.layer))

it.live("several processes that start at once apply each migration once", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    const applied = yield* Effect.all([migrate(url), migrate(url), migrate(url)], {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(applied.flat().sort(), files)
    assert.deepStrictEqual(yield* migrate(url), [])
  })
)

it.live("a migration that was changed after it was applied stops the start and is named", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    yield* migrate(url)
    yield* run(url, "update schema_migration set digest = 'other' where name = '0001_core.sql'")
    const error = yield* Effect.flip(migrate(url))
    assert.include(error.message, "0001_core.sql")
  })
)

it.live("a login without the two roles is told what to grant; with them it needs to make tables only", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    yield* migrate(yield* emptyDatabase)
    const [name, password] = [`login_${randomUUID().slice(0, 8)}`, randomUUID()]
    yield* Effect.acquireRelease(run(url, `create role ${name} login password '${password}'`), () =>
      Effect.orDie(run(url, `grant ${name} to current_user`, `drop owned by ${name}`, `drop role ${name}`))
    )
    yield* run(url, `grant create on schema public to ${name}`)
    const asLogin = new URL(Redacted.value(url))
    asLogin.username = name
    asLogin.password = password
    const login = Redacted.make(asLogin.href)

    const error = yield* Effect.flip(migrate(login))
    assert.include(error.message, `grant svc_api to "${name}"`)
    yield* run(url, `grant svc_api, svc_engine to ${name}`)
    assert.deepStrictEqual(yield* migrate(login), files)
    const seen = yield* Effect.gen(function* () {
      const { api, engine } = yield* Db
      return [yield* api`select current_user as name`, yield* engine`select current_user as name`]
    }).pipe(Effect.provide(Db.layer({ url: login })))
    assert.deepStrictEqual(seen.flat(), [{ name: "svc_api" }, { name: "svc_engine" }])
  }).pipe(Effect.scoped)
)
