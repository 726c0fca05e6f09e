import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { migrate } from "#src/store/migrate.ts"
import { emptyDatabase } from "#test/setup/database.ts"

it.live("several processes that start at once apply each migration once", () =>
  Effect.gen(function* () {
    const url = yield* emptyDatabase
    const applied = yield* Effect.all([migrate(url), migrate(url), migrate(url)], {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(applied.flat().sort(), ["0001_core.sql", "0002_row_security.sql"])
    assert.deepStrictEqual(yield* migrate(url), [])
  })
)
