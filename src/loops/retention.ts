/**
 * Removing rows whose time has passed: every table that only grows has a rule, which removes a small batch at a time, so
 * that no statement takes long. Any number of processes may do it at once; each row goes once.
 */
import * as Effect from "effect/Effect"
import { answered } from "#src/engine/answered.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** Removes at most a batch of rows, and answers what it removed. */
export type RetentionRule = Effect.Effect<ReadonlyArray<unknown>, StoreUnavailable>

/** One round: each rule until it finds less than a batch. One that fails, for whatever reason, keeps no other. */
export const removeInBatches = (
  /** After "could not": "remove old rows". */
  does: string,
  batch: number,
  rules: ReadonlyArray<RetentionRule>
): Effect.Effect<void> =>
  Effect.forEach(
    rules,
    (rule) =>
      answered(does)(rule).pipe(
        Effect.repeat({ while: (rows) => rows.length >= batch }),
        Effect.catchCause((cause) => Effect.logWarning(`could not ${does}`, cause))
      ),
    { discard: true }
  )
