/** What one run means for its resource, and the measures by which that is decided. */
import * as Duration from "effect/Duration"
import type { Phase } from "#schemas/condition.ts"
import type { ConditionInput } from "./conditions.ts"
import type { EngineOptions } from "./options.ts"
import type { Difference, Observation, Registration } from "./Reconciler.ts"
import type { Claimed, EngineEvent, Priority, StatusChange, WaitTarget } from "./WorkStore.ts"

/** How a run ended, for metrics. */
export type OutcomeName =
  | "ready"
  | "progressing"
  | "waiting"
  | "retryable"
  | "terminal"
  | "paused"
  | "deleting"
  | "deleted"

/** The parts of the report that differ by outcome. */
export interface Outcome {
  readonly outcome: OutcomeName
  readonly phase: Phase
  readonly ready: Omit<ConditionInput, "type">
  readonly synced: Omit<ConditionInput, "type">
  /** Undefined: the last one stays. */
  readonly status: StatusChange["status"] | undefined
  /** What this run has found to stay true. */
  readonly facts?: StatusChange["facts"] | undefined
  readonly differences: ReadonlyArray<Difference>
  /** Undefined: the run does not tell whether there is drift. */
  readonly drift: "none" | "open" | "repaired" | undefined
  readonly driftEvents: ReadonlyArray<EngineEvent>
  /** What the new facts say has happened. */
  readonly happened?: ReadonlyArray<EngineEvent>
  readonly dueIn: number
  readonly priority: Priority
  /** Whether the try counts towards backoff and stalling. */
  readonly madeNoProgress: boolean
  readonly waitingOn: WaitTarget | null
  readonly lastError: string | null
  /** Reason of the event that tells the error. Absent: that of the condition Synced. */
  readonly errorReason?: string
}

/** Longer than anybody waits: "not again by itself". */
export const never = 10 * 365 * 86_400_000

/** Jitter of a fifth keeps what was made together from being looked at together for ever. */
export const driftDelay = (registration: Registration, random: number): number =>
  Duration.toMillis(Duration.fromInputUnsafe(registration.driftInterval)) * (0.9 + random * 0.2)

/** When to look again at what is on its way by itself. */
export const pollDelay = (observation: Observation<unknown>, otherwise: number): number =>
  observation._tag === "Present" && observation.pollAfter !== undefined
    ? Duration.toMillis(Duration.fromInputUnsafe(observation.pollAfter))
    : otherwise

/** Exponential backoff with full jitter, above a small floor; rare once stalled. */
export const backoff = (attempt: number, options: EngineOptions, random: number): number => {
  const [base, cap] = options.backoffMs
  if (attempt + 1 >= options.stallAfter) return options.stalledRetryMs * (0.75 + random / 2)
  const ceiling = Math.min(cap, base * 2 ** attempt)
  return ceiling / 5 + random * ceiling * 0.8
}

/** The phase of something on its way: it never was ready, or it was and is being changed. */
export const underway = (claimed: Claimed): Phase =>
  claimed.deleting
    ? "deleting"
    : claimed.phase === "ready" || claimed.phase === "updating"
      ? "updating"
      : claimed.status !== null && claimed.phase !== "provisioning" && claimed.phase !== "pending"
        ? "updating"
        : "provisioning"

/**
 * The phase of what is only looked at: `ready` says no more than that users can rely on it. What cannot be relied on
 * waits for whoever paused it, however long.
 */
export const whilePaused = (claimed: Claimed, ready: boolean): Phase =>
  claimed.deleting ? "deleting" : ready ? "ready" : claimed.phase === "failed" ? "failed" : "waiting"

export const listed = (differences: ReadonlyArray<Difference>, absent: boolean): string =>
  absent
    ? "it is not there"
    : differences.map((difference) => `${difference.field}: ${difference.message}`).join("; ")
