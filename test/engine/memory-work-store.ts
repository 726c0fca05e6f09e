/**
 * The state store as the engine sees it, in memory: the queue and what runs record, over what people want. It passes
 * the same suite as Postgres, so what the simulation proves over it holds there too, as far as each call is one atomic
 * step.
 *
 * Every method is one such step and answers at once. Time is the clock it is given. A {@link Flaw} breaks one promise
 * on purpose, to prove that the simulation notices.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { anyPool } from "#schemas/placement.ts"
import { slotOf } from "#src/engine/members.ts"
import {
  type Claimed,
  type Kept,
  type KindRoom,
  type Lease,
  type Member,
  noLease,
  priorityPenalty,
  type QueueStats,
  type Recorded,
  ResultsRefused,
  type Returned,
  type StatusChange,
  type WaitTarget,
  type WorkStore
} from "#src/engine/WorkStore.ts"
import { DesiredRows } from "./memory-desired-rows.ts"
import type { Flaw, ResourceRow, WorkRow } from "./memory-rows.ts"

/** What lies in the pool of all is offered to every process. */
const isOffered = (row: WorkRow, pool: string): boolean => row.pool === pool || row.pool === anyPool

export class MemoryStore extends DesiredRows {
  /** Revisions of rows that are gone: what waits for one of them must learn of it. */
  readonly tombstones = new Map<string, bigint>()
  readonly events: Array<{ readonly uid: string; readonly reason: string; readonly message: string }> = []
  /** Called when a process comes or goes. */
  announceMembers: () => void = () => undefined
  readonly #members = new Map<string, Member & { readonly until: number }>()
  /** Rows as they were before what only memory has of them. */
  readonly #unflushed = new Map<string, WorkRow>()
  /** A number for each lease, and the last one that is on the disk. */
  readonly #numbers = { last: 0n, flushed: 0n }
  readonly #flaws: ReadonlySet<Flaw>

  constructor(now: () => number, flaws: ReadonlySet<Flaw> = new Set()) {
    super(now)
    this.#flaws = flaws
  }

  /** Takes back what is not on the disk: leases, and results that changed nothing, whose leases are there again. */
  crash(): { readonly lost: ReadonlyArray<Lease>; readonly back: ReadonlyArray<Lease> } {
    const lost: Array<Lease> = []
    const back: Array<Lease> = []
    for (const [uid, before] of this.#unflushed) {
      const row = this.work.get(uid)
      if (row === undefined) continue
      if (row.leaseToken !== null) lost.push({ orgId: row.orgId, uid, token: row.leaseToken })
      Object.assign(row, before)
      if (before.leaseToken !== null) back.push({ orgId: row.orgId, uid, token: before.leaseToken })
    }
    this.#numbers.last = this.#numbers.flushed
    this.#unflushed.clear()
    return { lost, back }
  }

  protected override flush(): void {
    this.#unflushed.clear()
    this.#numbers.flushed = this.#numbers.last
  }

  claim(rooms: ReadonlyArray<KindRoom>, leaseMs: number): ReadonlyArray<Claimed> {
    const now = this.now()
    return rooms.flatMap(({ kind, pool, room, fullOrgs, urgent = false, leaveMs = 0 }) =>
      [...this.work.values()]
        .filter((row) => row.kind === kind && isOffered(row, pool))
        .filter((row) => this.#isDue(row, now) && !fullOrgs.includes(row.orgId))
        .filter((row) => !urgent || row.rank <= now || this.#flaws.has("priorities ignored"))
        .filter((row) => row.rank > now || row.rank <= now - leaveMs)
        .sort((a, b) => this.#before(a, b))
        .slice(0, room)
        .map((row) => {
          row.pool = pool
          return this.#take(row, leaseMs, now - row.dueAt)
        })
    )
  }

  claimOne(orgId: string, uid: string, leaseMs: number, pool: string): Option.Option<Claimed> {
    const row = this.#queued({ orgId, uid })
    return row === undefined || this.#isLeased(row) || !isOffered(row, pool)
      ? Option.none()
      : Option.some(this.#take(row, leaseMs, 0))
  }

  heartbeat(leases: ReadonlyArray<Lease>, leaseMs: number): ReadonlyArray<Lease> {
    const kept = leases.filter((lease) => {
      const row = this.#held(lease)
      if (row !== undefined) this.#hide(row, leaseMs)
      return row !== undefined
    })
    if (kept.length > 0) this.flush()
    return kept
  }

  /** What Postgres has no form for: the NUL character, and surrogates without their other half. */
  refuses(results: ReadonlyArray<Recorded>): boolean {
    const isOdd = (value: unknown): boolean =>
      typeof value === "string"
        ? value.includes("\0") || !value.isWellFormed()
        : typeof value === "object" && value !== null && Object.entries(value).flat().some(isOdd)
    return results.some(({ lastError, change }) => isOdd([lastError, change]))
  }

  record(results: ReadonlyArray<Recorded>): ReadonlyArray<Lease> {
    const now = this.now()
    const kept = results.filter((result) => this.#held(result.lease) !== undefined)
    const written = new Set(kept.map((result) => result.lease.uid))
    if (kept.some(({ change }) => change !== undefined)) this.flush()
    for (const { lease, change } of kept)
      if (change === undefined) this.#changeInMemory(this.work.get(lease.uid)!)
    for (const result of kept) {
      if (result.change?.gone === true) this.work.delete(result.lease.uid)
      else this.#requeue(this.work.get(result.lease.uid)!, result, results, now)
    }
    for (const { lease, change } of kept) if (change !== undefined) this.#change(lease.uid, change, written)
    return kept.map((result) => result.lease)
  }

  release(leases: ReadonlyArray<Returned>): void {
    if (this.#flaws.has("nothing released")) return
    for (const lease of leases) {
      const row = this.#held(lease)
      if (row === undefined) continue
      this.flush()
      this.#give(row)
      this.#reschedule(row, this.now() - (row.again ? Math.max(lease.lateBy, 0) : lease.lateBy))
      this.announce()
    }
  }

  join(member: Member, leaseMs: number): ReadonlyArray<Member> {
    const now = this.now()
    const ended = [...this.#members.values()].filter((one) => one.until < now && one.id !== member.id)
    for (const one of ended) this.#members.delete(one.id)
    const isNew = !this.#members.has(member.id)
    this.flush()
    this.#members.set(member.id, { ...member, until: now + leaseMs })
    if (isNew || ended.length > 0) this.announceMembers()
    return [...this.#members.values()].map(({ id, region }) => ({ id, region }))
  }

  leave(id: string): void {
    if (this.#members.delete(id)) this.announceMembers()
  }

  kept(pool: string, slots: ReadonlyArray<number>): ReadonlyArray<Kept> {
    if (this.#flaws.has("kept ones forgotten")) return []
    return [...this.work.values()]
      .filter((row) => row.kept && row.pool === pool && slots.includes(slotOf(row.uid)))
      .map(({ orgId, uid, kind }) => ({ orgId, uid, kind }))
  }

  look(kept: ReadonlyArray<Kept>): ReadonlyArray<Claimed> {
    return kept.flatMap((one) => {
      const row = this.#queued(one)
      return row !== undefined && this.#isKept(row) ? [this.#load(row, noLease, 0)] : []
    })
  }

  wake(found: ReadonlyArray<Pick<Kept, "orgId" | "uid">>): void {
    if (this.#flaws.has("finds ignored")) return
    for (const one of found) {
      const row = this.#queued(one)
      if (row === undefined || !this.#isKept(row)) continue
      this.flush()
      row.kept = false
      row.dueAt = this.now()
      row.rank = row.dueAt + priorityPenalty[1]
      this.announce()
    }
  }

  cascade(orgId: string, uid: string): void {
    for (const child of this.children(orgId, uid)) {
      if (child.deleting) continue
      this.markDeleting(child)
      this.touch(child.uid)
    }
  }

  nextDueIn(work: ReadonlyArray<Pick<KindRoom, "kind" | "pool">>): Option.Option<number> {
    const due = [...this.work.values()]
      .filter((row) => work.some(({ kind, pool }) => row.kind === kind && isOffered(row, pool)))
      .map((row) => row.dueAt)
    return due.length === 0 ? Option.none() : Option.some(Math.min(...due) - this.now())
  }

  stats(): ReadonlyArray<QueueStats> {
    const now = this.now()
    return [...Map.groupBy(this.work.values(), (row) => row.kind)].map(([kind, rows]) => {
      const late = rows.filter((row) => row.dueAt <= now).map((row) => now - row.dueAt)
      return { kind, depth: rows.length, due: late.length, oldestDueMs: Math.max(0, ...late) }
    })
  }

  /** Makes everything due for a routine look at once, as a long sleep or an outage of everything does. */
  makeRoutineDue(): void {
    const now = this.now()
    for (const row of this.work.values()) {
      row.dueAt = now
      row.rank = now + priorityPenalty[2]
    }
    this.announce()
  }

  // Steps ------------------------------------------------------------------------------------------------------

  #isKept(row: WorkRow): boolean {
    const isSettled = this.resources.get(row.uid)?.settled === true
    return row.kept && isSettled && row.dueAt > this.now() && !this.#isLeased(row) && row.retryToken === null
  }

  #isLeased(row: WorkRow): boolean {
    if (row.leaseUntil === null || this.#flaws.has("leases ignored")) return false
    return this.#flaws.has("leases never end") || row.leaseUntil >= this.now()
  }

  #isDue(row: WorkRow, now: number): boolean {
    if (row.leaseUntil === null) return row.dueAt <= now
    if (this.#flaws.has("leases ignored")) return true
    return row.dueAt <= now && !this.#flaws.has("leases never end")
  }

  #before(a: WorkRow, b: WorkRow): number {
    if (this.#flaws.has("priorities ignored")) return a.dueAt - b.dueAt
    const penalty = (row: WorkRow) => row.rank - row.dueAt
    return (this.#flaws.has("age ignored") ? penalty(a) - penalty(b) : 0) || a.rank - b.rank
  }

  #queued({ orgId, uid }: Pick<Lease, "orgId" | "uid">): WorkRow | undefined {
    const row = this.work.get(uid)
    return row?.orgId === orgId ? row : undefined
  }

  #held(lease: Lease): WorkRow | undefined {
    const row = this.#queued(lease)
    return row?.leaseToken === lease.token || this.#flaws.has("no fencing") ? row : undefined
  }

  /** Moves the due time behind the end of the lease. */
  #hide(row: WorkRow, leaseMs: number): void {
    row.leaseUntil = this.now() + leaseMs
    this.#reschedule(row, row.leaseUntil)
  }

  /** At another time, with the same priority. */
  #reschedule(row: WorkRow, dueAt: number): void {
    row.rank += dueAt - row.dueAt
    row.dueAt = dueAt
  }

  #give(row: WorkRow): void {
    row.leaseToken = null
    row.leaseUntil = null
  }

  #take(row: WorkRow, leaseMs: number, lateBy: number): Claimed {
    this.#changeInMemory(row)
    row.lastToken = this.#nextToken(row)
    row.leaseToken = row.lastToken
    this.#hide(row, leaseMs)
    row.again = false
    row.waitingOn = null
    row.kept = false
    return this.#load(row, row.lastToken, lateBy)
  }

  /** What comes now goes to the disk with whatever somebody waits for next. */
  #changeInMemory(row: WorkRow): void {
    if (!this.#unflushed.has(row.uid)) this.#unflushed.set(row.uid, { ...row })
  }

  /** Rises over crashes, which take back the numbers that nobody has on the disk: time goes on meanwhile. */
  #nextToken({ lastToken }: WorkRow): bigint {
    const number = ++this.#numbers.last
    if (this.#flaws.has("tokens repeated")) return number
    const byClock = BigInt(Math.floor(this.now()) - Date.UTC(2020, 0)) * 4096n + (number % 4096n)
    return byClock > lastToken ? byClock : lastToken + 1n
  }

  #load(row: WorkRow, token: bigint, lateBy: number): Claimed {
    const resource = this.resources.get(row.uid)!
    const now = this.now()
    const inside = resource.deleting ? this.children(row.orgId, row.uid) : []
    const { conditions, differences } = resource
    const settled =
      resource.settled &&
      resource.phase === "ready" &&
      resource.observedGeneration === resource.generation &&
      !resource.deleting
    return {
      orgId: row.orgId,
      uid: row.uid,
      kind: row.kind,
      token,
      attempt: row.attempt,
      retryToken: row.retryToken,
      lateBy,
      projectId: resource.projectId,
      environment: null,
      name: resource.name,
      parentUid: resource.parentUid,
      spec: resource.spec,
      generation: resource.generation,
      status: resource.status,
      facts: resource.facts,
      observedGeneration: resource.observedGeneration,
      phase: resource.phase,
      phaseAge: now - resource.phaseSince,
      settled,
      reported: { conditions, differences },
      deleting: resource.deleting,
      paused: this.#flaws.has("pauses invisible") ? null : this.pausedNow(resource),
      children: resource.deleting
        ? {
            count: inside.length,
            notDeleting: inside.filter((child) => !child.deleting).length,
            first: inside.map((child) => `${child.kind} "${child.name}"`).sort()[0] ?? ""
          }
        : null,
      seen: String(this.revision),
      now
    }
  }

  #requeue(row: WorkRow, result: Recorded, batch: ReadonlyArray<Recorded>, now: number): void {
    const wanted = row.again && !this.#flaws.has("again ignored")
    const soon = wanted || (result.change !== undefined && this.#changedMeanwhile(result, batch))
    this.#give(row)
    row.again = false
    row.attempt = result.attempt
    row.lastError = result.lastError
    row.waitingOn = result.waitingOn === null ? null : keyOf(result.waitingOn)
    row.kept = result.keptForMs !== undefined && !soon
    row.dueAt = soon ? now : now + result.dueIn + (result.keptForMs ?? 0)
    row.rank = soon ? now : row.dueAt + priorityPenalty[result.priority]
    if (result.change === undefined || this.#flaws.has("retries unacknowledged")) return
    row.handledRetry = result.handledRetry ?? row.handledRetry
    if (row.retryToken === result.handledRetry) row.retryToken = null
  }

  /** What it waits for changed since it was looked at, or something in it goes with the same batch. */
  #changedMeanwhile(result: Recorded, batch: ReadonlyArray<Recorded>): boolean {
    const { waitingOn, seen } = result
    const childGoes = batch.some(
      (other) => other.change?.gone && this.resources.get(other.lease.uid)?.parentUid === result.lease.uid
    )
    if (childGoes) return true
    if (waitingOn === null || this.#flaws.has("changes before waiting missed")) return false
    const key = keyOf(waitingOn)
    const target = this.resources.get(key) ?? [...this.resources.values()].find((row) => nameOf(row) === key)
    const revision = target?.revision ?? this.tombstones.get(key) ?? 0n
    return revision > BigInt(seen) || batch.some((other) => other.lease.uid === (target?.uid ?? key))
  }

  #change(uid: string, change: StatusChange, written: ReadonlySet<string>): void {
    const resource = this.resources.get(uid)!
    const unaware = resource.deleting && !change.deleting && !this.#flaws.has("deletion overwritten")
    if (!unaware && resource.phase !== change.phase) {
      resource.phase = change.phase
      resource.phaseSince = this.now()
    }
    resource.status = change.status
    resource.facts = { ...resource.facts, ...change.facts }
    resource.conditions = change.conditions
    resource.differences = change.differences
    resource.observedGeneration = change.observedGeneration
    resource.settled = change.settled
    resource.revision = ++this.revision
    for (const { reason, message } of change.events) this.events.push({ uid, reason, message })
    if (change.gone) {
      this.resources.delete(uid)
      this.tombstones.set(uid, this.revision)
    }
    this.#wakeAfter(resource, change.gone, written)
  }

  #wakeAfter(resource: ResourceRow, gone: boolean, written: ReadonlySet<string>): void {
    for (const row of this.work.values()) {
      if (row.orgId !== resource.orgId || written.has(row.uid)) continue
      const waits =
        row.waitingOn !== null &&
        [resource.uid, nameOf(resource)].includes(row.waitingOn) &&
        !this.#flaws.has("waiters not woken")
      const contains = gone && row.uid === resource.parentUid && !this.#flaws.has("parents not woken")
      if (waits || contains) this.touch(row.uid, { keepWaiting: false })
    }
  }
}

const keyOf = (target: WaitTarget): string =>
  typeof target === "string"
    ? target
    : [target.kind, target.projectId, target.environment, target.name].join("/")
const nameOf = ({ kind, projectId, name }: ResourceRow): string =>
  keyOf({ kind, projectId, environment: null, name })

/** The store as a service of the engine, without network or faults. */
export const workStore = (store: MemoryStore): WorkStore["Service"] => ({
  claim: (rooms, leaseMs) => Effect.sync(() => store.claim(rooms, leaseMs)),
  claimOne: (orgId, uid, leaseMs, pool) => Effect.sync(() => store.claimOne(orgId, uid, leaseMs, pool)),
  heartbeat: (leases, leaseMs) => Effect.sync(() => store.heartbeat(leases, leaseMs)),
  record: (results) =>
    Effect.suspend(() =>
      store.refuses(results)
        ? Effect.fail(new ResultsRefused({ message: "There is text that no store holds" }))
        : Effect.succeed(store.record(results))
    ),
  release: (leases) => Effect.sync(() => store.release(leases)),
  join: (member, leaseMs) => Effect.sync(() => store.join(member, leaseMs)),
  leave: (id) => Effect.sync(() => store.leave(id)),
  kept: (pool, slots) => Effect.sync(() => store.kept(pool, slots)),
  look: (kept) => Effect.sync(() => store.look(kept)),
  wake: (found) => Effect.sync(() => store.wake(found)),
  cascade: (orgId, uid) => Effect.sync(() => store.cascade(orgId, uid)),
  nextDueIn: (work) => Effect.sync(() => store.nextDueIn(work)),
  stats: Effect.sync(() => store.stats())
})
