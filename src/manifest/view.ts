/** Plans and what came of them, as callers see them. */
import { addressOf, type ResourceRecord } from "#src/store/records.ts"
import type { Blocker, Plan, PlannedChange, Warning } from "./change.ts"
import type { PlanDigest } from "./digest.ts"

/** What a plan comes to, whether or not it is kept. */
export interface Comparison {
  readonly organization: string
  readonly baseRevision: string
  readonly summary: Readonly<Record<"create" | "update" | "replace" | "delete" | "noop" | "drift", number>>
  readonly changes: ReadonlyArray<PlannedChange>
  readonly drift: ReadonlyArray<{
    readonly address: string
    readonly differences: ResourceRecord["differences"]
    readonly observedAt: string | null
  }>
  readonly blockers: ReadonlyArray<Blocker>
  readonly warnings: ReadonlyArray<Warning>
}

/** For those who have to tell plans apart. */
export interface Compared extends Comparison {
  readonly digest: PlanDigest
}

export interface PlanView extends Comparison {
  readonly planId: string
  readonly createdAt: string
  readonly expiresAt: string
}

export interface SavedPlanView extends PlanView {
  readonly appliedAt: string | null
  /** What has changed since the plan looked at it. */
  readonly moved: ReadonlyArray<string>
}

export interface AppliedView {
  readonly changes: ReadonlyArray<PlannedChange>
  readonly revision: string
  readonly resources: ReadonlyArray<{
    readonly uid: string
    readonly address: string
    readonly generation: number
  }>
}

export const view = (
  stored: { readonly id: string; readonly createdAt: Date; readonly expiresAt: Date },
  comparison: Comparison
): PlanView => ({
  planId: stored.id,
  createdAt: stored.createdAt.toISOString(),
  expiresAt: stored.expiresAt.toISOString(),
  ...comparison
})

export const comparison = (
  organization: string,
  plan: Plan,
  records: ReadonlyArray<ResourceRecord>
): Comparison => {
  const drift = records
    .filter(
      ({ conditions, deletionRequestedAt }) =>
        deletionRequestedAt === null &&
        conditions.some(({ type, status }) => type === "Drifted" && status === "true")
    )
    .map((record) => ({
      address: addressOf(record),
      differences: record.differences,
      observedAt: record.conditions.find(({ type }) => type === "Drifted")?.lastTransitionAt ?? null
    }))
  const count = (action: PlannedChange["action"]) =>
    plan.changes.filter((change) => change.action === action).length
  return {
    organization,
    baseRevision: records.reduce(
      (most, { revision }) => (BigInt(revision) > BigInt(most) ? revision : most),
      "0"
    ),
    summary: {
      create: count("create"),
      update: count("update"),
      replace: count("replace"),
      delete: count("delete"),
      noop: count("noop"),
      drift: drift.length
    },
    changes: plan.changes,
    drift,
    blockers: plan.blockers,
    warnings: plan.warnings
  }
}
