/** Times and bounds of the runners; a reference, so that tests and benchmarks can have their own. */
import * as Context from "effect/Context"

export interface CronOptions {
  /** How long before its time a run is planned. */
  readonly aheadMs: number
  /** A run that could not begin so long after its time is skipped. */
  readonly missedAfterMs: number
  readonly leaseMs: number
  readonly heartbeatMs: number
  /** Attempts at once in this process. */
  readonly concurrency: number
  /** Of these, how many for one organization at most; it has fewer while others have theirs. */
  readonly orgConcurrency: number
  /** Runs that one statement begins. */
  readonly batch: number
  /** How long a stopping process waits for attempts that it began. */
  readonly drainMs: number
  /** A look even if nobody said anything. */
  readonly longestSleepMs: number
}

export const CronOptions = Context.Reference<CronOptions>("svc/crons/CronOptions", {
  defaultValue: () => ({
    aheadMs: 30_000,
    missedAfterMs: 60_000,
    leaseMs: 30_000,
    heartbeatMs: 8_000,
    concurrency: 1_000,
    orgConcurrency: 500,
    batch: 250,
    drainMs: 5_000,
    longestSleepMs: 20_000
  })
})
