/** A database of its own for a test file, in the server of the run; migrated, with the two pools of the program on it. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { TracerEnabled } from "effect/References"
import { inject } from "vitest"
import { Db, type DbOptions } from "#src/store/Db.ts"
import { asAdministrator } from "./administrator.ts"

const makeDatabase = (template: string | undefined) =>
  Effect.gen(function* () {
    const serverUrl = inject("databaseUrl")
    const administrate = asAdministrator(serverUrl)
    const name = `test_${process.pid}_${Math.random().toString(36).slice(2)}`
    yield* Effect.acquireRelease(
      Effect.orDie(
        // As files: to write the copy to the log as well would take twice the processor time.
        administrate(
          `create database ${name}${template === undefined ? "" : ` template ${template} strategy file_copy`}`
        )
      ),
      () =>
        // The server waits no longer than five seconds for the connections that it ends.
        administrate(`drop database if exists ${name} with (force)`).pipe(
          Effect.retry({ times: 10 }),
          Effect.orDie
        )
    )
    const url = new URL(serverUrl)
    url.pathname = `/${name}`
    return Redacted.make(url.href)
  })

/** URL of a new database without any table, dropped when the scope closes. */
export const emptyDatabase = makeDatabase(undefined)

/** URL of a new database with the schema of the state store and no rows, dropped when the scope closes. */
export const migratedDatabase = Effect.suspend(() => makeDatabase(inject("databaseTemplate")))

/** Traces nothing, as a program without a collector. */
export const testDb = (options: Partial<DbOptions> = {}) =>
  Layer.unwrap(
    Effect.map(migratedDatabase, (url) =>
      Layer.provideMerge(Db.layer({ url, ...options }), Layer.succeed(TracerEnabled, false))
    )
  )
