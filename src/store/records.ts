/** The shape in which resources leave the store. */
import type { Condition, Phase } from "#schemas/condition.ts"
import type { Difference } from "#schemas/difference.ts"
import type { Json } from "#schemas/kind.ts"

export interface ResourceRecord {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  /** Slug of the project that it is in; a project's own slug for a project. */
  readonly project: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly generation: number
  readonly status: Json | null
  readonly observedGeneration: number
  readonly phase: Phase
  readonly phaseSince: Date
  readonly conditions: ReadonlyArray<Condition>
  /** How what is there departed from the specification when it was last looked at. */
  readonly differences: ReadonlyArray<Difference>
  /** Store-wide change number; opaque and compared for equality only. */
  readonly revision: string
  readonly protected: boolean
  readonly managedBy: "api" | "manifest"
  readonly deletionRequestedAt: Date | null
  readonly createdAt: Date
  readonly updatedAt: Date
  /** Consecutive tries without success. */
  readonly attempt: number
  readonly nextAttemptAt: Date | null
  readonly lastError: string | null
  /** Token of the last "retry now" that was carried out. */
  readonly handledRetry: string | null
  /** What must come or change first. Null also while that is waited for by a name that nothing has yet. */
  readonly waitingOn: { readonly uid: string; readonly kind: string; readonly name: string } | null
}

/** What lists of one kind show of each: reading the rest would cost as much again. */
export type ListedRecord = Pick<
  ResourceRecord,
  | "orgId"
  | "uid"
  | "kind"
  | "environment"
  | "name"
  | "parentUid"
  | "spec"
  | "status"
  | "phase"
  | "conditions"
  | "deletionRequestedAt"
  | "createdAt"
  | "updatedAt"
> & {
  /** Null also for what is ready. */
  readonly lastError: string | null
}

/** Whether users can rely on it, as the last look found. */
export const isReady = (conditions: ResourceRecord["conditions"]): boolean =>
  conditions.some(({ type, status }) => type === "Ready" && status === "true")

/** `project/environment/kind/name`, without the parts that the kind's scope does not have. */
export const addressOf = (
  record: Pick<ResourceRecord, "project" | "environment" | "kind" | "name">
): string =>
  [record.kind === "Project" ? null : record.project, record.environment, record.kind, record.name]
    .filter((part) => part !== null)
    .join("/")

/** Tables of what an organization has besides resources, whose rows paths name by id. */
export type AccessTable = "member" | "invitation" | "api_key" | "agent_grant" | "webhook" | "git_connection"

/** Who asked for a change, for the history of the resource and the audit log. */
export interface Actor {
  /** `user:<id>`, `key:<id>`, `grant:<id>`, `maintenance:<id>` or `system`. */
  readonly principal: string
  /** `session`, `key`, `grant`, `maintenance` or `none`. */
  readonly credential: string
  /** Operation id, such as `caches.create`. */
  readonly operation: string
  readonly requestId: string
  readonly address: string | null
  /** HTTP status that success answers with. */
  readonly outcome: number
}
