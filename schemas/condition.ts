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
 * Every reason the engine gives by itself. Kinds add their own in `Kind.reasons`.
 * Reasons are stable words: alerts and programs match on them.
 */
export const engineReasons = {
  Converged: "What is there matches what was asked for",
  Pending: "Nobody has looked at the resource yet",
  Progressing: "A change is under way",
  WaitingForDependency: "Another resource must be ready first",
  WaitingForChildren: "What the resource contains must be deleted first",
  Deleting: "Deletion was asked for and is under way",
  ReconcileFailed: "The last try failed and will be repeated",
  InvalidSpec: "The specification cannot be satisfied; change it or retry by hand",
  FactsUnreadable: "What is known of the resource for good cannot be read; nothing is changed until it can",
  UpkeepFailed: "It can be relied on; a step of its upkeep failed and will be repeated",
  HostDependencyMissing: "A program that the kind needs is not installed on this host",
  DeadlineExceeded: "The phase took longer than it may",
  NoProgress: "Several tries in a row changed nothing",
  Advancing: "Tries are making progress",
  DriftFound: "What is there differs from what was asked for",
  NoDrift: "The last look found no difference",
  PausedByUser: "Reconciling is paused: the resource is observed and not touched",
  NotPaused: "Reconciling is not paused"
} as const
export type EngineReason = keyof typeof engineReasons

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
