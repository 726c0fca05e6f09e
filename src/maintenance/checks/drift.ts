/** Resources that are not as they were asked for, and do not become so by themselves. */
import * as Effect from "effect/Effect"
import { engineReasons } from "#schemas/condition.ts"
import { findKind } from "#schemas/index.ts"
import { addressOf, type ResourceRecord } from "#src/store/records.ts"
import type { Finding } from "../finding.ts"
import { type Check, dayMs, findingOf, hourMs, spanInWords } from "../look.ts"
import { resume, retry } from "../remedies.ts"

/** What passes by itself has passed by then. */
const patienceMs = hourMs
const pausedMs = 7 * dayMs

const reasons = new Map(Object.entries(engineReasons))
const severityOf = (kind: string, reason: string) =>
  (reasons.get(reason) ?? findKind(kind)?.reasons[reason])?.severity ?? "warning"

export const drift: Check = ({ now, resources, leaving }) =>
  Effect.sync(() => [
    ...resources.flatMap((record) => stuck(record, now)),
    ...resources.flatMap((record) => drifted(record, now)),
    ...resources.flatMap((record) => paused(record, now)),
    ...leaving.flatMap((record) => undeleted(record, now))
  ])

const isTrue = (record: ResourceRecord, type: string) =>
  record.conditions.find((one) => one.type === type && one.status === "true")
const agedMs = (at: string, now: number) => now - Date.parse(at)

/** Each is one finding, whichever of the conditions says it. */
const stuck = (record: ResourceRecord, now: number): ReadonlyArray<Finding> => {
  const stalled = isTrue(record, "Stalled")
  const unready = record.conditions.find(
    ({ type, status, reason, lastTransitionAt }) =>
      type === "Ready" &&
      status === "false" &&
      (record.phase === "failed" || severityOf(record.kind, reason) === "warning") &&
      agedMs(lastTransitionAt, now) > patienceMs
  )
  const condition = stalled ?? unready
  if (condition === undefined) return []
  return [
    findingOf("drift", "stuck", record, {
      severity: stalled === undefined ? "warning" : "critical",
      summary: `${addressOf(record)} is stuck: ${condition.message}`,
      risk: "What was asked for is not there, and may not come by itself.",
      evidence: {
        phase: record.phase,
        reason: condition.reason,
        since: condition.lastTransitionAt,
        attempts: record.attempt,
        lastError: record.lastError
      },
      remedy: retry(record),
      basis: condition.reason
    })
  ]
}

const drifted = (record: ResourceRecord, now: number): ReadonlyArray<Finding> => {
  const condition = isTrue(record, "Drifted")
  if (condition === undefined || agedMs(condition.lastTransitionAt, now) < patienceMs) return []
  const fields = record.differences.map(({ field }) => field)
  return [
    findingOf("drift", "drifted", record, {
      severity: "warning",
      summary: `${addressOf(record)} has differed from what was asked for since ${condition.lastTransitionAt}`,
      risk: "It does not behave as its specification says.",
      evidence: { since: condition.lastTransitionAt, fields: fields.join(", ") },
      remedy: retry(record),
      basis: fields.toSorted().join(" ")
    })
  ]
}

const paused = (record: ResourceRecord, now: number): ReadonlyArray<Finding> => {
  const condition = isTrue(record, "Paused")
  if (condition === undefined || agedMs(condition.lastTransitionAt, now) < pausedMs) return []
  return [
    findingOf("drift", "paused", record, {
      severity: "info",
      summary: `${addressOf(record)} has been paused for ${spanInWords(agedMs(condition.lastTransitionAt, now))}`,
      risk: "Nothing is mended or changed while it is paused.",
      evidence: { since: condition.lastTransitionAt, reason: condition.message },
      remedy: resume(record)
    })
  ]
}

const undeleted = (record: ResourceRecord, now: number): ReadonlyArray<Finding> => {
  const since = record.deletionRequestedAt
  if (since === null || now - since.getTime() < patienceMs) return []
  return [
    findingOf("drift", "not-deleted", record, {
      severity: "warning",
      summary: `${addressOf(record)} was to be deleted ${spanInWords(now - since.getTime())} ago and is still there`,
      risk: "It keeps its name, and may go on to cost.",
      evidence: { since: since.toISOString(), lastError: record.lastError },
      remedy: retry(record)
    })
  ]
}
