/** Which of the runs whose time has come begin, and what becomes of the others. */
import type { CronSpec } from "#schemas/cron.ts"
import type { Attempt, RunStatus } from "./run.ts"

export interface Candidate {
  readonly orgId: string
  readonly id: string
  readonly cronUid: string
  readonly cronName: string
  readonly environmentUid: string
  readonly spec: CronSpec
  readonly trigger: "schedule" | "manual"
  readonly scheduledAt: Date
  readonly attempt: number
  readonly attempts: ReadonlyArray<Attempt>
  readonly startedAt: Date | null
  /** Somebody held it and let the lease end. */
  readonly abandoned: boolean
  readonly lateBy: number
}

export interface Decision {
  readonly orgId: string
  readonly id: string
  readonly status: RunStatus
  readonly reason: string | null
  /** Null: as they are. */
  readonly attempts: ReadonlyArray<Attempt> | null
}

const unseen = "The control plane that made this attempt ended before there was an answer"

/** Why a run is skipped whose time is so long ago. */
export const tooLate = (missedAfterMs: number) =>
  `It could not begin within ${missedAfterMs / 1000} s of its time: no control plane was running, or too many other runs were going on`

/** `active` are the runs that have begun and not ended. The candidates come in the order of their times. */
export const decide = (
  candidates: ReadonlyArray<Candidate>,
  active: ReadonlyArray<{ readonly orgId: string; readonly cronUid: string; readonly id: string }>,
  missedAfterMs: number
): ReadonlyArray<Decision> => {
  const decisions = new Map<string, Decision>()
  const underway = new Map<string, Array<{ readonly orgId: string; readonly id: string }>>()
  for (const run of active) underway.set(run.cronUid, [...(underway.get(run.cronUid) ?? []), run])

  for (const { orgId, id, cronUid, spec, trigger, attempt, attempts, ...run } of candidates) {
    // Replaced by one that was looked at before it.
    if (decisions.has(id)) continue
    const set = (status: RunStatus, reason: string | null, known: ReadonlyArray<Attempt> | null = null) =>
      decisions.set(id, { orgId, id, status, reason, attempts: known })
    if (attempt > 0) {
      if (!run.abandoned) set("running", null)
      else {
        const startedAt = (run.startedAt ?? run.scheduledAt).toISOString()
        const known = [...attempts, { startedAt, durationMs: null, statusCode: null, error: unseen }]
        if (attempt < spec.retry.maxAttempts) set("running", null, known)
        else set("failed", unseen, known)
      }
      continue
    }
    if (trigger === "schedule" && run.lateBy > missedAfterMs) {
      set("skipped", tooLate(missedAfterMs))
      continue
    }
    const others = underway.get(cronUid) ?? []
    if (spec.concurrencyPolicy === "skip" && others.length > 0) {
      set("skipped", `The run ${others[0]?.id} was still going on`)
      continue
    }
    if (spec.concurrencyPolicy === "replace") {
      for (const other of others) {
        decisions.set(other.id, {
          ...other,
          status: "replaced",
          reason: `The run ${id} took its place`,
          attempts: null
        })
      }
    }
    underway.set(cronUid, spec.concurrencyPolicy === "allow" ? [...others, { orgId, id }] : [{ orgId, id }])
    set("running", null)
  }
  return [...decisions.values()]
}
