/**
 * What people want, in memory: the resources, the pauses, and the few ways in which they change them. Each change makes
 * due what it concerns, as the store's own statements do.
 */
import { isDeepStrictEqual } from "node:util"
import { findKind } from "#schemas/index.ts"
import type { Json } from "#schemas/kind.ts"
import { poolOf } from "#schemas/placement.ts"
import type { Paused } from "#src/engine/WorkStore.ts"
import type { PauseTarget } from "#src/store/Interventions.ts"
import type { NewResource, PauseRow, ResourceRow, WorkRow } from "./memory-rows.ts"

export class DesiredRows {
  readonly resources = new Map<string, ResourceRow>()
  readonly work = new Map<string, WorkRow>()
  readonly pauses: Array<PauseRow> = []
  /** Called whenever something may have become due. */
  announce: () => void = () => undefined
  protected readonly now: () => number
  protected revision = 0n
  #retries = 0

  constructor(now: () => number) {
    this.now = now
  }

  create(resource: NewResource): boolean {
    const parent = resource.parentUid === null ? undefined : this.resources.get(resource.parentUid)
    if (resource.parentUid !== null && (parent === undefined || parent.deleting)) return false
    const { orgId, uid, kind } = resource
    const now = this.now()
    this.resources.set(uid, {
      ...resource,
      secrets: new Set(resource.secrets),
      generation: 1,
      revision: ++this.revision,
      status: null,
      facts: {},
      phase: "pending",
      phaseSince: now,
      observedGeneration: 0,
      conditions: [],
      differences: [],
      settled: false,
      deleting: false
    })
    this.work.set(uid, {
      orgId,
      uid,
      kind,
      pool: poolOf(findKind(resource.kind), resource.spec),
      dueAt: now,
      rank: now,
      kept: false,
      attempt: 0,
      again: false,
      leaseToken: null,
      leaseUntil: null,
      lastToken: 0n,
      waitingOn: null,
      lastError: null,
      retryToken: null,
      handledRetry: null
    })
    this.announce()
    return true
  }

  update(uid: string, spec: Json): boolean {
    const row = this.resources.get(uid)
    if (row === undefined || row.deleting) return false
    if (!isDeepStrictEqual(row.spec, spec)) row.generation++
    row.spec = spec
    row.revision = ++this.revision
    this.touch(uid, { keepWaiting: false })
    return true
  }

  /** Asks for the deletion of a resource and of everything in it. */
  delete(uid: string): boolean {
    const row = this.resources.get(uid)
    if (row === undefined) return false
    for (const child of this.children(row.orgId, uid)) this.delete(child.uid)
    this.markDeleting(row)
    this.touch(uid, { keepWaiting: false })
    return true
  }

  retry(uid: string): string {
    const token = `retry-${++this.#retries}`
    const row = this.work.get(uid)
    if (row === undefined) return token
    row.retryToken = token
    row.attempt = 0
    this.touch(uid, { keepWaiting: false })
    return token
  }

  pause(orgId: string, target: PauseTarget, forMs: number | null): void {
    this.#unpause(orgId, target)
    const until = forMs === null ? null : this.now() + forMs
    this.pauses.push({ orgId, ...target, by: "somebody", reason: "a reason", until })
    this.#touchCovered(orgId, target)
  }

  resume(orgId: string, target: PauseTarget): void {
    this.#unpause(orgId, target)
    this.#touchCovered(orgId, target)
  }

  pausedNow(resource: ResourceRow): Paused | null {
    const found = this.pauses.find((pause) => this.#covers(pause, resource))
    if (found === undefined) return null
    const endsIn = found.until === null ? null : found.until - this.now()
    return { by: found.by, reason: found.reason, endsIn }
  }

  // Steps ------------------------------------------------------------------------------------------------------

  /** What has happened so far is on the disk. */
  protected flush(): void {}

  /** Makes it due now, or once the run that is under way has ended. */
  protected touch(uid: string, { keepWaiting } = { keepWaiting: true }): void {
    this.flush()
    const row = this.work.get(uid)
    if (row === undefined) return
    row.again = true
    if (!keepWaiting) row.waitingOn = null
    if (row.leaseUntil === null || row.leaseUntil <= this.now()) row.dueAt = this.now()
    row.rank = row.dueAt
    this.announce()
  }

  protected markDeleting(row: ResourceRow): void {
    if (row.phase !== "deleting") row.phaseSince = this.now()
    row.phase = "deleting"
    row.deleting = true
    row.revision = ++this.revision
  }

  protected children(orgId: string, uid: string): ReadonlyArray<ResourceRow> {
    return [...this.resources.values()].filter((row) => row.orgId === orgId && row.parentUid === uid)
  }

  #unpause(orgId: string, { scope, target }: PauseTarget): void {
    const index = this.pauses.findIndex(
      (pause) => pause.orgId === orgId && pause.scope === scope && pause.target === target
    )
    if (index >= 0) this.pauses.splice(index, 1)
  }

  #touchCovered(orgId: string, target: PauseTarget): void {
    const pause = { orgId, ...target, by: "", reason: "", until: null }
    for (const row of this.resources.values()) if (this.#covers(pause, row)) this.touch(row.uid)
  }

  #covers({ orgId, scope, target, until }: PauseRow, resource: ResourceRow): boolean {
    if (orgId !== resource.orgId || (until !== null && until <= this.now())) return false
    return (
      scope === "organization" ||
      (scope === "kind" && target === resource.kind) ||
      (scope === "resource" && target === resource.uid) ||
      (scope === "project" && (target === resource.projectId || target === resource.uid))
    )
  }
}
