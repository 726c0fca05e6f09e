/**
 * What the engine needs of the store, and nothing more. Postgres keeps it in production; a model in memory keeps
 * it in the simulation, and one suite of tests holds for both.
 *
 * Time is the store's time: processes never compare their clocks.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Condition, Phase } from "#schemas/condition.ts"
import type { Difference } from "#schemas/difference.ts"
import type { Json } from "#schemas/kind.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Facts } from "./facts.ts"

/**
 * The right to reconcile one resource for a while. Tokens rise; a write that carries an old one has no effect, so
 * a process that slept through its lease changes nothing (a fencing token).
 */
export interface Lease {
  readonly orgId: string
  readonly uid: string
  readonly token: bigint
}

export interface Paused {
  readonly by: string
  readonly reason: string
  /** Milliseconds from now until it ends by itself; null: until somebody resumes. */
  readonly endsIn: number | null
}

export interface Reported {
  readonly conditions: ReadonlyArray<Condition>
  readonly differences: ReadonlyArray<Difference>
}

/** A resource under lease, as it is now. */
export interface Claimed extends Lease {
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly generation: number
  readonly status: Json | null
  readonly facts: Facts
  readonly observedGeneration: number
  readonly phase: Phase
  /** Milliseconds that the phase has lasted. */
  readonly phaseAge: number
  /**
   * Ready at this generation, with no difference, no warning and nobody's request pending: when the next look finds
   * the same status, nothing needs to be written but the time of the look after it.
   */
  readonly settled: boolean
  /** What was last reported. Empty for a look, which reports nothing. */
  readonly reported: Reported
  readonly deleting: boolean
  /** Consecutive tries without success before this one. */
  readonly attempt: number
  /** Milliseconds that it was due before it was claimed. */
  readonly lateBy: number
  readonly retryToken: string | null
  readonly paused: Paused | null
  /** While deleting: what it still contains. */
  readonly children: { readonly count: number; readonly notDeleting: number; readonly first: string } | null
  /** The store's mark of what was visible when it was loaded, so that it can tell what has changed since. */
  readonly seen: string
  /** The store's clock when it was loaded, in milliseconds since 1970. */
  readonly now: number
}

/** Of what was loaded without a lease. No lease has it, so a result by it is never stored. */
export const noLease = 0n

/** A lease that comes to nothing. Late by less than nothing: it is due only then. */
export type Returned = Pick<Claimed, keyof Lease | "lateBy">

/**
 * The store answered, and cannot hold at least one of the results: another try with the same ones is in vain. No result
 * that changes anything was written.
 */
export class ResultsRefused extends Schema.TaggedError<ResultsRefused>()("ResultsRefused", {
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** 0: somebody asked. 1: another try. 2: a routine look. */
export type Priority = 0 | 1 | 2
/** How long, in milliseconds, work of each priority yields to work of a higher one. Age lifts it above. */
export const priorityPenalty: Readonly<Record<Priority, number>> = { 0: 0, 1: 10_000, 2: 60_000 }

export interface EngineEvent {
  readonly type: "Normal" | "Warning" | "Outside"
  readonly reason: string
  readonly message: string
}

/** A resource by the name that it has in its place, whether or not it exists yet. */
const NamedResource = Schema.Struct({
  kind: Schema.String,
  projectId: Schema.NullOr(Schema.String),
  environment: Schema.NullOr(Schema.String),
  name: Schema.String
})

/** What a resource waits for: another one, by its uid or by its name. */
export const WaitTarget = Schema.Union([Schema.String, NamedResource])
export type WaitTarget = typeof WaitTarget.Type

/** What a reconcile found and when to look again. */
export interface Recorded {
  readonly lease: Lease
  /** Milliseconds until the next look. */
  readonly dueIn: number
  readonly priority: Priority
  readonly attempt: number
  readonly waitingOn: WaitTarget | null
  readonly seen: string
  readonly lastError: string | null
  /** The "retry now" that this run carried out. */
  readonly handledRetry: string | null
  /** Absent: the resource is as it was, and only its turn is over. */
  readonly change: StatusChange | undefined
  /**
   * It is settled, and this process looks at it next, from memory (`looks.ts`). The queue offers it only `keptForMs` after
   * that look would be due, whoever has looked: looks that find nothing write nothing.
   */
  readonly keptForMs?: number | undefined
}

/** A settled resource whose next look is kept in the memory of a process. */
export interface Kept {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
}

/** A process that runs reconciles, and is alive as far as the store knows. */
export interface Member {
  readonly id: string
  readonly region: string
}

export interface StatusChange {
  readonly status: Json | null
  /** Replace what is stored under the same keys; what is stored under others stays. */
  readonly facts: Facts
  readonly phase: Phase
  readonly conditions: ReadonlyArray<Condition>
  readonly differences: ReadonlyArray<Difference>
  readonly observedGeneration: number
  /** There is nothing to do and nothing to report until somebody changes something, here or out there. */
  readonly settled: boolean
  /** Whether the run knew that deletion was asked for. */
  readonly deleting: boolean
  /** The real thing is gone and so is the row. */
  readonly gone: boolean
  readonly events: ReadonlyArray<EngineEvent>
}

/** How many of a kind may be claimed now, and which organizations have their share already. */
export interface KindRoom {
  readonly kind: string
  /**
   * The pool that this process serves for the kind. What lies in the pool of all is offered as well, and belongs to this
   * one from then on: it was made before its kind had pools.
   */
  readonly pool: string
  readonly room: number
  readonly fullOrgs: ReadonlyArray<string>
  /** Only what somebody asked for, or what is so late that it counts like that. */
  readonly urgent?: boolean
  /** What somebody asked for within so many milliseconds is left to others, who claim only that and start it sooner. */
  readonly leaveMs?: number
}

export interface QueueStats {
  readonly kind: string
  readonly depth: number
  readonly due: number
  readonly oldestDueMs: number
}

export class WorkStore extends Context.Service<
  WorkStore,
  {
    /**
     * Leases what is due, in the order of rank within each kind, and loads it. A crash of the store may take these leases
     * back, without repeating their tokens, until they have been extended.
     */
    readonly claim: (
      rooms: ReadonlyArray<KindRoom>,
      leaseMs: number
    ) => Effect.Effect<ReadonlyArray<Claimed>, StoreUnavailable>
    /** Leases one resource whether due or not; none when it is leased already or does not exist. */
    readonly claimOne: (
      orgId: string,
      uid: string,
      leaseMs: number,
      /** The pool that this process serves, beside that of all. */
      pool: string
    ) => Effect.Effect<Option.Option<Claimed>, StoreUnavailable>
    /** Extends leases, also over a crash of the store; answers the ones that still hold. */
    readonly heartbeat: (
      leases: ReadonlyArray<Lease>,
      leaseMs: number
    ) => Effect.Effect<ReadonlyArray<Lease>, StoreUnavailable>
    /** Writes results and gives the leases back; answers the leases that still held. The others wrote nothing. */
    readonly record: (
      results: ReadonlyArray<Recorded>
    ) => Effect.Effect<ReadonlyArray<Lease>, StoreUnavailable | ResultsRefused>
    /**
     * Gives leases back unused: the resources are due at once, as late as they were and at their priority. What is to be
     * due only later is due at once all the same when it was changed meanwhile.
     */
    readonly release: (claimed: ReadonlyArray<Returned>) => Effect.Effect<void, StoreUnavailable>
    /** Says that this process is alive for as long as that; answers all that are, this one among them. */
    readonly join: (member: Member, leaseMs: number) => Effect.Effect<ReadonlyArray<Member>, StoreUnavailable>
    /** This process is going: what it looked at is for the others. */
    readonly leave: (id: string) => Effect.Effect<void, StoreUnavailable>
    /** What is kept, in these slots of a pool. */
    readonly kept: (
      pool: string,
      slots: ReadonlyArray<number>
    ) => Effect.Effect<ReadonlyArray<Kept>, StoreUnavailable>
    /**
     * Loads resources for a look without a lease. Left out are those that are kept no more: somebody has one under lease,
     * or has asked for something.
     */
    readonly look: (kept: ReadonlyArray<Kept>) => Effect.Effect<ReadonlyArray<Claimed>, StoreUnavailable>
    /** Looks found something: what is still kept is due, like another try. */
    readonly wake: (
      found: ReadonlyArray<Pick<Kept, "orgId" | "uid">>
    ) => Effect.Effect<void, StoreUnavailable>
    /** Asks for the deletion of what a deleting resource still contains. */
    readonly cascade: (orgId: string, uid: string) => Effect.Effect<void, StoreUnavailable>
    /** Milliseconds until something of these kinds and pools is due, if anything is scheduled. */
    readonly nextDueIn: (
      work: ReadonlyArray<Pick<KindRoom, "kind" | "pool">>
    ) => Effect.Effect<Option.Option<number>, StoreUnavailable>
    readonly stats: Effect.Effect<ReadonlyArray<QueueStats>, StoreUnavailable>
  }
>()("svc/engine/WorkStore") {}
