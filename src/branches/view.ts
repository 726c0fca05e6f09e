/** How a branch looks to callers. */
import * as Schema from "effect/Schema"
import { DatabaseBranch, type DatabaseBranchStatus, expiryOf } from "#schemas/database-branch.ts"
import { isReady, type ResourceRecord } from "#src/store/records.ts"

const decode = Schema.decodeUnknownSync(
  Schema.Struct({ spec: DatabaseBranch.spec, status: Schema.NullOr(DatabaseBranch.status) })
)

/** What was stored was valid: what does not decode is a fault of the program. */
export const decodeBranch = (record: Pick<ResourceRecord, "spec" | "status">) =>
  decode({ spec: record.spec, status: record.status })

/** The database that it is a branch of; null as long as nobody has found the one that a manifest named. */
export const sourceOf = (record: Pick<ResourceRecord, "spec" | "status">): string | null => {
  const { spec, status } = decodeBranch(record)
  return spec.sourceDatabaseId ?? status?.sourceDatabaseId ?? null
}

/** The status tells what was last seen of it; when it cannot be seen, or is not there any more, it is not ready. */
const stateOf = (
  { phase, conditions }: Pick<ResourceRecord, "phase" | "conditions">,
  status: DatabaseBranchStatus | null
): DatabaseBranchStatus["state"] | "failed" => {
  const seen = status?.state ?? "queued"
  if (seen === "ready" && isReady(conditions)) return "ready"
  return phase === "failed" ? "failed" : seen === "ready" ? "hydrating" : seen
}

type Viewed = Pick<
  ResourceRecord,
  "uid" | "name" | "environment" | "spec" | "status" | "phase" | "conditions" | "lastError" | "createdAt"
>

export const branchView = (record: Viewed) => {
  const { spec, status } = decodeBranch(record)
  const state = stateOf(record, status)
  const hydrated = status?.hydrated === true
  const share =
    hydrated || state === "promoted" || state === "expired"
      ? 100
      : status !== null && status.totalBytes > 0
        ? // Files grow while they are copied; the last percent is the log and the comparison.
          Math.min(99, Math.floor((status.doneBytes / status.totalBytes) * 100))
        : 0
  const connectionReady = state === "ready" && spec.promotedTo === undefined && record.phase === "ready"
  const expiry = expiryOf(record.uid, spec)
  return {
    id: record.uid,
    sourceDatabaseId: sourceOf(record),
    databaseId: state === "promoted" ? (spec.promotedTo ?? null) : null,
    name: record.name,
    environment: record.environment ?? "",
    region: spec.region,
    sku: spec.sku,
    source: {
      kind: spec.source.kind,
      backupId: spec.source.kind === "backup" ? spec.source.backupId : null,
      pointInTime: spec.source.kind === "point_in_time" ? spec.source.pointInTime : null
    },
    status: state,
    failure:
      status?.failure ??
      (spec.promotionRefused === undefined ? null : { ...spec.promotionRefused, step: "promotion" }) ??
      (state === "failed" && record.lastError !== null
        ? { code: "failed", step: null, detail: record.lastError }
        : null),
    // Copying is by far the longest part; starting the server is the rest.
    progressPercent:
      share === 100 ? (connectionReady || state !== "hydrating" ? 100 : 95) : Math.floor(share * 0.95),
    hydrationMode: "full_copy" as const,
    hydrationProgressPercent: share,
    connectionReady,
    fullyHydrated: hydrated,
    host: connectionReady ? (status?.host ?? null) : null,
    port: connectionReady ? (status?.port ?? null) : null,
    deleteOnPreviewClose: spec.deleteOnPreviewClose,
    expiresAt: expiry === undefined ? null : new Date(expiry).toISOString(),
    createdAt: record.createdAt.toISOString()
  }
}
