/**
 * How records look in answers, of whatever kind they are; the views of one kind are in its feature. Secrets are not in
 * records; the fingerprints of variables are masked all the same.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { isReadableSpec } from "#schemas/complete-spec.ts"
import { findKind } from "#schemas/index.ts"
import { isTooDeep } from "#schemas/json-depth.ts"
import type { Json, Kind } from "#schemas/kind.ts"
import { publicSpec } from "#schemas/public-spec.ts"
import { addressOf, isReady, type ResourceRecord } from "#src/store/records.ts"

export const etagOf = (record: Pick<ResourceRecord, "revision">): string => `"${record.revision}"`

/**
 * `provisioning`, `ready` or `failed`, as the operations of single kinds tell it: `ready` as long as the condition says
 * that users can rely on it, whatever is being changed.
 */
export const serviceStatus = ({
  phase,
  conditions
}: Pick<ResourceRecord, "phase" | "conditions">): "provisioning" | "ready" | "failed" =>
  phase !== "deleting" && isReady(conditions) ? "ready" : phase === "failed" ? "failed" : "provisioning"

/**
 * Specification and status of a record by its kind's schemas. What does not decode is a fault of the program: it
 * throws, which is a defect wherever a view is made.
 */
export const decodeWith = <Spec, Status>(kind: Kind<string, Spec, Status>) => {
  const decode = Schema.decodeUnknownSync(
    Schema.Struct({ spec: kind.spec, status: Schema.NullOr(kind.status) })
  )
  return (record: Pick<ResourceRecord, "spec" | "status">) =>
    decode({ spec: record.spec, status: record.status })
}

/** Whether the stored specification is one of its kind still. */
export const isReadable = ({ kind, spec }: Pick<ResourceRecord, "kind" | "spec">): boolean => {
  const found = findKind(kind)
  return found === undefined || isReadableSpec(found, spec)
}

/** Views of a list. A record that cannot be read is left out: it must not keep the others from being seen. */
export const viewAll = <R extends { readonly spec: unknown }, A>(
  records: ReadonlyArray<R>,
  view: (record: R) => A
): Effect.Effect<ReadonlyArray<A>> =>
  Effect.suspend(() => {
    const unread: Array<R> = []
    const views = records.flatMap((record) => {
      try {
        if (!isTooDeep(record.spec)) return [view(record)]
      } catch (error) {
        if (!Schema.isSchemaError(error)) throw error
      }
      unread.push(record)
      return []
    })
    return unread.length === 0
      ? Effect.succeed(views)
      : Effect.as(
          Effect.logWarning(
            `${unread.length} records were left out of a list: their stored specifications are not valid`
          ),
          views
        )
  })

export const resourceSummary = (record: ResourceRecord) => ({
  uid: record.uid,
  address: addressOf(record),
  kind: record.kind,
  project: record.project,
  environment: record.environment,
  name: record.name,
  phase: record.phase,
  conditions: record.conditions,
  differences: record.differences,
  generation: record.generation,
  observedGeneration: record.observedGeneration,
  attempt: record.attempt,
  nextAttemptAt: record.nextAttemptAt?.toISOString() ?? null,
  lastError: record.lastError,
  handledRetry: record.handledRetry,
  waitingOn: record.waitingOn,
  protected: record.protected,
  managedBy: record.managedBy,
  deleting: record.deletionRequestedAt !== null,
  revision: record.revision,
  createdAt: record.createdAt.toISOString(),
  updatedAt: record.updatedAt.toISOString()
})

export const resourceDetail = (record: ResourceRecord) => ({
  ...resourceSummary(record),
  spec: specView(record),
  status: record.status,
  parentUid: record.parentUid
})

/**
 * The specification without what the platform sets by itself, and with sealed values masked. None of a kind that only a
 * newer version knows: which of its fields are nobody's business is not known here. And none that is too deep to be read.
 */
const specView = (record: Pick<ResourceRecord, "kind" | "spec">): Json => {
  const kind = findKind(record.kind)
  return kind === undefined || isTooDeep(record.spec) ? null : publicSpec(kind, record.spec)
}
