/** The store as the tests of its promises see it, and what they start from. */
import { assert, type Vitest } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Json } from "#schemas/kind.ts"
import { anyPool } from "#schemas/placement.ts"
import {
  type Claimed,
  type KindRoom,
  type Recorded,
  type StatusChange,
  type WaitTarget,
  WorkStore
} from "#src/engine/WorkStore.ts"
import type { PauseTarget } from "#src/store/Interventions.ts"
import { uuid } from "#test/setup/fixtures.ts"

export interface NewResource {
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  /** Fields whose secrets are stored with it. */
  readonly secrets: ReadonlyArray<string>
}

/** What is stored about one resource; null where there is nothing any more. */
export interface Stored {
  readonly resource: {
    readonly generation: number
    readonly revision: bigint
    readonly status: Json | null
    readonly phase: string
    readonly observedGeneration: number
    readonly deleting: boolean
  } | null
  readonly work: {
    /** Milliseconds. */
    readonly dueIn: number
    readonly leased: boolean
    readonly attempt: number
    readonly lastError: string | null
    readonly waitingOn: string | null
    readonly handledRetry: string | null
  } | null
  readonly secrets: number
}

/** The other sides of the store: users, time, and a look at what it holds. */
export class StoreUnderTest extends Context.Service<
  StoreUnderTest,
  {
    readonly makeOrganization: Effect.Effect<string>
    readonly create: (orgId: string, resource: NewResource) => Effect.Effect<void>
    readonly update: (orgId: string, uid: string, spec: Json) => Effect.Effect<void>
    readonly delete: (orgId: string, uid: string) => Effect.Effect<void>
    readonly retry: (orgId: string, uid: string) => Effect.Effect<string>
    readonly pause: (orgId: string, target: PauseTarget, forMs: number | null) => Effect.Effect<void>
    readonly resume: (orgId: string, target: PauseTarget) => Effect.Effect<void>
    /** Takes back that deletion was asked for: what a creation that slipped past it leaves. */
    readonly spare: (orgId: string, uid: string) => Effect.Effect<void>
    readonly advance: (ms: number) => Effect.Effect<void>
    readonly stored: (orgId: string, uid: string) => Effect.Effect<Stored>
  }
>()("test/engine/StoreUnderTest") {}

export type It = Vitest.MethodsNonLive<WorkStore | StoreUnderTest>

/** Time goes on by itself too, and a slow machine may take long from one line to the next: no bound is nearer than this. */
export const slack = 60_000
export const leaseMs = 10 * slack
const hour = 60 * slack

/** A kind and an organization that no other test knows. */
export const setting = Effect.gen(function* () {
  const work = yield* WorkStore
  const store = yield* StoreUnderTest
  const orgId = yield* store.makeOrganization
  const kind = `Kind${uuid().slice(-12)}`
  const make = Effect.fnUntraced(function* (options: Partial<NewResource> & { readonly org?: string } = {}) {
    const { org = orgId, ...given } = options
    const uid = uuid()
    const plain = {
      uid,
      kind,
      projectId: null,
      name: `r-${uid.slice(-12)}`,
      parentUid: null,
      spec: { size: 1 }
    }
    yield* store.create(org, { ...plain, secrets: [], ...given })
    return uid
  })
  const room = (n: number, fullOrgs: ReadonlyArray<string> = []): ReadonlyArray<KindRoom> => [
    { kind, pool: anyPool, room: n, fullOrgs }
  ]
  const claim = (n = 100) => work.claim(room(n), leaseMs)
  const claimUids = (n = 100) => Effect.map(claim(n), (claimed) => claimed.map((one) => one.uid))
  /** Claims exactly this one, whatever else is due. */
  const take = (uid: string) => Effect.map(work.claimOne(orgId, uid, leaseMs, anyPool), Option.getOrThrow)
  const stored = (uid: string) => store.stored(orgId, uid)
  return { work, store, orgId, kind, make, room, claim, claimUids, take, stored }
})

export const ready = (claimed: Claimed): StatusChange => ({
  status: { size: 1 },
  facts: {},
  phase: "ready",
  conditions: [],
  differences: [],
  observedGeneration: claimed.generation,
  settled: true,
  deleting: claimed.deleting,
  gone: false,
  events: []
})
export const gone = (claimed: Claimed): StatusChange => ({
  ...ready(claimed),
  status: null,
  phase: "deleted",
  settled: false,
  gone: true
})
const waiting = (claimed: Claimed): StatusChange => ({
  ...ready(claimed),
  phase: "waiting",
  settled: false
})

/** A routine result that changed something, unless told otherwise. */
export const result = (claimed: Claimed, more: Partial<Recorded> = {}): Recorded => ({
  lease: { orgId: claimed.orgId, uid: claimed.uid, token: claimed.token },
  dueIn: hour,
  priority: 2,
  attempt: 0,
  waitingOn: null,
  seen: claimed.seen,
  lastError: null,
  handledRetry: claimed.retryToken,
  change: ready(claimed),
  ...more
})
export const waitsFor = (claimed: Claimed, on: WaitTarget) =>
  result(claimed, { waitingOn: on, change: waiting(claimed), priority: 1 })

export const only = (claimed: ReadonlyArray<Claimed>): Claimed => {
  assert.lengthOf(claimed, 1)
  return claimed[0]!
}
export const uidsOf = (leases: ReadonlyArray<{ readonly uid: string }>) => leases.map((lease) => lease.uid)
