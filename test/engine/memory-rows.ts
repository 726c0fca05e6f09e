/** What the state store in memory holds, and the promises that it can be made to break. */
import type { Json } from "#schemas/kind.ts"
import type { StatusChange } from "#src/engine/WorkStore.ts"
import type { PauseTarget } from "#src/store/Interventions.ts"

/** A promise of the store that is broken on purpose. */
export type Flaw =
  /** Results are stored whoever holds the lease now. */
  | "no fencing"
  /** What is leased can be claimed again. */
  | "leases ignored"
  /** A lease lasts until it is given back. */
  | "leases never end"
  /** Giving a lease back does nothing. */
  | "nothing released"
  /** A change during a run makes nothing due. */
  | "again ignored"
  /** What waits on a resource is not woken when that changes. */
  | "waiters not woken"
  /** Changes between looking and recording are not noticed. */
  | "changes before waiting missed"
  /** A container does not learn that its last child is gone. */
  | "parents not woken"
  /** A run that knew nothing of the deletion overwrites the phase. */
  | "deletion overwritten"
  /** The engine does not learn that something is paused. */
  | "pauses invisible"
  /** Work is taken in the order in which it became due. */
  | "priorities ignored"
  /** Work of a low priority waits until there is none of a higher one. */
  | "age ignored"
  /** What looks find makes nothing due. */
  | "finds ignored"
  /** What a process kept is nobody's when it goes. */
  | "kept ones forgotten"
  /** A "retry now" is never acknowledged. */
  | "retries unacknowledged"
  /** Tokens that a crash took back are handed out again. */
  | "tokens repeated"

export interface NewResource {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly secrets: ReadonlyArray<string>
}

export interface ResourceRow extends Omit<NewResource, "spec" | "secrets"> {
  spec: Json
  secrets: Set<string>
  generation: number
  revision: bigint
  status: Json | null
  facts: StatusChange["facts"]
  phase: StatusChange["phase"]
  phaseSince: number
  observedGeneration: number
  conditions: StatusChange["conditions"]
  differences: StatusChange["differences"]
  settled: boolean
  deleting: boolean
}

export interface WorkRow {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  pool: string
  dueAt: number
  rank: number
  kept: boolean
  attempt: number
  again: boolean
  leaseToken: bigint | null
  leaseUntil: number | null
  lastToken: bigint
  waitingOn: string | null
  lastError: string | null
  retryToken: string | null
  handledRetry: string | null
}

export interface PauseRow extends PauseTarget {
  readonly orgId: string
  readonly by: string
  readonly reason: string
  until: number | null
}
