/** Where a period ends, counting begins anew: the last minute of one is waited out. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const within = (endOf: (now: Date) => number) =>
  Layer.effectDiscard(
    Effect.suspend(() => {
      const now = new Date()
      const left = endOf(now) - now.getTime()
      return left < 60_000 ? Effect.sleep(left + 1_000) : Effect.void
    })
  )

/** For budgets. */
export const withinOneMonth = within((now) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1))

/** For what is metered. A month ends with an hour. */
export const withinOneHour = within((now) => Math.floor(now.getTime() / 3_600_000 + 1) * 3_600_000)
