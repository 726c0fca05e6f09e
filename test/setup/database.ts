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
      Effect.flatMap(
        PgClient.makeClient({ url: Redacted.make(server.href), connectTimeout: "1 minute" }),
        (sql) => sql.unsafe(statement)
      )
    ).pipe(Effect.provide(Reactivity.layer))
  yield* Effect.acquireRelease(Effect.orDie(admin(`create database ${name}`)), () =>
    // The server waits no longer than five seconds for the connections that it ends.
    admin(`drop database if exists ${name} with (force)`).pipe(Effect.retry({ times: 10 }), Effect.orDie)
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
