/**
 * How much of a project's measurements is stored in a day (UTC). The statement that stores batches counts them and answers
 * the day's sums of all processes, so asking costs nothing more; what is on its way when a budget is used up is stored still.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { bytesPerDay, eventsPerDay } from "./settings.ts"

export class DailyBudgetUsed extends Schema.TaggedError<DailyBudgetUsed>()("DailyBudgetUsed", {
  message: Schema.String,
  /** Events or bytes, whichever is used up. */
  limit: Schema.Number,
  /** Seconds until the day is over. */
  retryAfter: Schema.Number
}) {}

/** What is stored of a project's measurements today. */
export interface Intake {
  readonly projectId: string
  readonly events: number
  readonly bytes: number
  /** Until the day is over. */
  readonly leftMs: number
}

export const makeDailyBudget = Effect.gen(function* () {
  const [events, bytes] = [yield* eventsPerDay, yield* bytesPerDay]
  /** Projects whose budget is used up, with what is and until when. */
  const used = new Map<string, { readonly limit: number; readonly untilMs: number }>()
  return {
    check: Effect.fnUntraced(function* (projectId: string) {
      const one = used.get(projectId)
      if (one === undefined) return
      const left = one.untilMs - (yield* Clock.currentTimeMillis)
      if (left <= 0) used.delete(projectId)
      else
        return yield* new DailyBudgetUsed({
          message: "The project's measurements of the day are used up",
          limit: one.limit,
          retryAfter: Math.ceil(left / 1_000)
        })
    }),
    count: Effect.fnUntraced(function* (intakes: Iterable<Intake>) {
      const now = yield* Clock.currentTimeMillis
      for (const [id, { untilMs }] of used) if (untilMs <= now) used.delete(id)
      for (const one of intakes) {
        const limit = one.events >= events ? events : one.bytes >= bytes ? bytes : undefined
        if (limit !== undefined) used.set(one.projectId, { limit, untilMs: now + one.leftMs })
      }
    })
  }
})
