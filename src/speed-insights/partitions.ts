/** Makes the days that measurements will belong to, and drops those that are over. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { Db, repeatable } from "#src/store/Db.ts"

/** One round. */
export const keepDays = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* repeatable(sql`select svc_speed_partitions()`)
})

export const layer = Layer.effectDiscard(
  periodic({ does: "make and drop days of measurements", every: "10 minutes" }, keepDays)
)
