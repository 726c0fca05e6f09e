/** A run of a cron job, as the store keeps it. */
import * as Schema from "effect/Schema"

export const RunStatus = Schema.Literals([
  "pending",
  "running",
  "succeeded",
  "failed",
  "timed_out",
  "skipped",
  "replaced"
])
export type RunStatus = typeof RunStatus.Type

/** One try that ended, well or not. */
export const Attempt = Schema.Struct({
  startedAt: Schema.String.annotate({ format: "date-time" }),
  durationMs: Schema.NullOr(Schema.Int).annotate({ description: "null: nobody saw it end" }),
  statusCode: Schema.NullOr(Schema.Int).annotate({ description: "null: no answer came" }),
  error: Schema.NullOr(Schema.String)
}).annotate({ identifier: "CronAttempt" })
export type Attempt = typeof Attempt.Type

export interface RunRecord {
  readonly id: string
  readonly cronId: string
  readonly trigger: "schedule" | "manual"
  readonly status: RunStatus
  readonly scheduledAt: Date
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
  readonly attempts: ReadonlyArray<Attempt>
  /** Why it came to this end. */
  readonly reason: string | null
}

/** Where announcements go: something may be due, or `stop <id>` of a run. */
export const channel = "svc_cron"
