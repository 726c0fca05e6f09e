import { spawn } from "node:child_process"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { migrate } from "#src/store/migrate.ts"
import { migratedDatabase } from "./database.ts"

it("a store test that starts a process fails, and is told where it belongs", () => {
  assert.throws(() => spawn("true"), /x\.test\.ts/)
})

it.live("each copy of the database of the run is a database of its own, and nothing is left to migrate", () =>
  Effect.gen(function* () {
    const [one, other] = [yield* migratedDatabase, yield* migratedDatabase]
    assert.notStrictEqual(Redacted.value(one), Redacted.value(other))
    assert.deepStrictEqual([yield* migrate(one), yield* migrate(other)], [[], []])
  }).pipe(Effect.scoped)
)
