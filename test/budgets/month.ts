/** Where a month ends, budgets begin anew: the last minute of one is waited out. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

export const withinOneMonth = Layer.effectDiscard(
  Effect.suspend(() => {
    const now = new Date()
    const left = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1) - now.getTime()
    return left < 60_000 ? Effect.sleep(left + 1_000) : Effect.void
  })
)
