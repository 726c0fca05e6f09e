/** What an operator reads about a resource: its phase and its conditions. */
import * as Schema from "effect/Schema"

/**
 * Where a resource is in its life. `ready`, `failed` and `waiting` may last; every other phase has a deadline.
 * `deleted` is never stored on a living row: it marks the last entry of a resource in the change feed.
 */
export const Phase = Schema.Literals([
  "pending",
  "provisioning",
  "updating",
  "waiting",
  "ready",
  "failed",
  "deleting",
  "deleted"
]).annotate({ identifier: "Phase" })
export type Phase = typeof Phase.Type

export const ConditionType = Schema.Literals(["Ready", "Synced", "Stalled", "Drifted", "Paused"])
export type ConditionType = typeof ConditionType.Type

/**
 * What a reason of a condition means, and whether somebody should look into it: while work goes its normal way a resource
 * is not ready either.
 */
export interface Reason {
  readonly means: string
  readonly severity: "progress" | "warning"
}
export const progress = (means: string): Reason => ({ means, severity: "progress" })
export const warning = (means: string): Reason => ({ means, severity: "warning" })

/**
 * Every reason the engine gives by itself. Kinds add their own in `Kind.reasons`.
 * Reasons are stable words: alerts and programs match on them.
 */
export const engineReasons = {
  Converged: progress("What is there matches what was asked for"),
  Pending: progress("Nobody has looked at the resource yet"),
  Progressing: progress("A change is under way"),
  WaitingForDependency: progress("Another resource must be ready first"),
  WaitingForChildren: progress("What the resource contains must be deleted first"),
  Deleting: progress("Deletion was asked for and is under way"),
  ReconcileFailed: warning("The last try failed and will be repeated"),
  InvalidSpec: warning("The specification cannot be satisfied; change it or retry by hand"),
  FactsUnreadable: warning(
    "What is known of the resource for good cannot be read; nothing is changed until it can"
  ),
  UpkeepFailed: warning("It can be relied on; a step of its maintenance failed and will be repeated"),
  HostDependencyMissing: warning("A program that the kind needs is not installed on this host"),
  DeadlineExceeded: warning("The phase took longer than it may"),
  NoProgress: warning("Several tries in a row changed nothing"),
  Advancing: progress("Tries are making progress"),
  DriftFound: warning("What is there differs from what was asked for"),
  NoDrift: progress("The last look found no difference"),
  PausedByUser: progress("Reconciling is paused: the resource is observed and not touched"),
  NotPaused: progress("Reconciling is not paused")
} satisfies Readonly<Record<string, Reason>>

export const Condition = Schema.Struct({
  type: ConditionType,
  status: Schema.Literals(["true", "false", "unknown"]),
  reason: Schema.String.annotate({ description: "A stable CamelCase word" }),
  message: Schema.String.annotate({ description: "A sentence that says what to do or what happens next" }),
  lastTransitionAt: Schema.String.annotate({
    format: "date-time",
    description: "When `status` last changed (RFC 3339, UTC)"
  }),
  observedGeneration: Schema.Int
}).annotate({ identifier: "Condition" })
export type Condition = typeof Condition.Type
