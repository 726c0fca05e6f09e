/**
 * When to look at what is settled, in memory: by time until it is due, and then by organization, so that a tenant with
 * many resources keeps nobody else's waiting.
 */
import TinyQueue from "tinyqueue"
import type { Kept } from "./WorkStore.ts"

/** A look that is to come. */
export interface Entry extends Kept {
  readonly dueAt: number
}

/** How much of a kind may be taken, in all and for each organization. */
export interface LookRoom {
  readonly kind: string
  readonly room: number
  readonly orgRoom: (orgId: string) => number
}

export class LookSchedule {
  /** What counts of each resource. Entries elsewhere that differ from it are passed over. */
  readonly #entries = new Map<string, Entry>()
  readonly #later = new TinyQueue<Entry>([], (a, b) => a.dueAt - b.dueAt)
  /** Which kind is served first. */
  #turn = 0
  /** What is due: by kind, and then by organization in the order in which they are served. */
  readonly #due = new Map<string, Map<string, Array<Entry>>>()

  get size(): number {
    return this.#entries.size
  }

  has(uid: string): boolean {
    return this.#entries.has(uid)
  }

  put({ orgId, uid, kind }: Kept, dueAt: number): void {
    const entry = { orgId, uid, kind, dueAt }
    this.#entries.set(uid, entry)
    this.#later.push(entry)
  }

  drop(uid: string): void {
    this.#entries.delete(uid)
  }

  dropUnless(stays: (kept: Kept) => boolean): void {
    for (const entry of this.#entries.values()) if (!stays(entry)) this.#entries.delete(entry.uid)
  }

  hasDue(now: number): boolean {
    return this.#due.size > 0 || (this.nextAt ?? Number.POSITIVE_INFINITY) <= now
  }

  /** When the first of what is not due yet becomes due. */
  get nextAt(): number | undefined {
    for (let first = this.#later.peek(); first !== undefined; first = this.#later.peek()) {
      if (this.#entries.get(first.uid) === first) return first.dueAt
      this.#later.pop()
    }
    return undefined
  }

  /** Takes what is due out, `most` in all, in turns between kinds and between organizations. */
  take(rooms: ReadonlyArray<LookRoom>, now: number, most = Number.POSITIVE_INFINITY): ReadonlyArray<Entry> {
    this.#ripen(now)
    const first = this.#turn++ % Math.max(1, rooms.length)
    let left = most
    return [...rooms.slice(first), ...rooms.slice(0, first)].flatMap((room) => {
      const orgs = this.#due.get(room.kind)
      if (orgs === undefined) return []
      const taken = this.#takeOf(orgs, { ...room, room: Math.min(room.room, left) })
      left -= taken.length
      if (orgs.size === 0) this.#due.delete(room.kind)
      return taken
    })
  }

  #ripen(now: number): void {
    for (let at = this.nextAt; at !== undefined && at <= now; at = this.nextAt) {
      const entry = this.#later.pop()!
      const orgs = this.#due.get(entry.kind) ?? new Map<string, Array<Entry>>()
      this.#due.set(entry.kind, orgs)
      const queue = orgs.get(entry.orgId)
      if (queue === undefined) orgs.set(entry.orgId, [entry])
      else queue.push(entry)
    }
  }

  #takeOf(orgs: Map<string, Array<Entry>>, { room, orgRoom }: LookRoom): Array<Entry> {
    const taken: Array<Entry> = []
    const slice = Math.max(1, Math.ceil(room / Math.max(1, orgs.size)))
    for (const [orgId, queue] of [...orgs]) {
      let left = Math.min(orgRoom(orgId), room - taken.length)
      if (orgs.size > 1) left = Math.min(left, slice)
      if (left <= 0) continue
      orgs.delete(orgId)
      const from = queue.splice(0, left)
      for (const entry of from) {
        if (this.#entries.get(entry.uid) !== entry) continue
        this.#entries.delete(entry.uid)
        taken.push(entry)
      }
      // Whoever was served queues behind the others.
      if (queue.length > 0) orgs.set(orgId, queue)
      if (taken.length >= room) break
    }
    return taken
  }
}
