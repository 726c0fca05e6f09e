/** A database of its own for a test file, migrated, with the two pools of the program on it. */
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import { inject } from "vitest"
import { Db, type DbOptions } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"

/** URL of a new, empty database that is dropped when the scope closes. */
export const emptyDatabase = Effect.gen(function* () {
  const server = new URL(inject("databaseUrl"))
  const name = `test_${process.pid}_${Math.random().toString(36).slice(2)}`
  const admin = (statement: string) =>
    Effect.scoped(
      Effect.flatMap(PgClient.makeClient({ url: Redacted.make(server.href) }), (sql) => sql.unsafe(statement))
    ).pipe(Effect.provide(Reactivity.layer), Effect.orDie)
  yield* Effect.acquireRelease(admin(`create database ${name}`), () =>
    admin(`drop database if exists ${name} with (force)`)
  )
  const url = new URL(server)
  url.pathname = `/${name}`
  return Redacted.make(url.href)
})

export const testDb = (options: Partial<DbOptions> = {}) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const url = yield* emptyDatabase
      yield* migrate(url)
      return Db.layer({ url, ...options })
    })
  )
