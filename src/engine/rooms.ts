/** How much more may be begun in this process: in all, of each kind, and for each organization. */
import { anyPool } from "#schemas/placement.ts"
import type { Running } from "./leases.ts"
import type { LookRoom } from "./look-schedule.ts"
import type { EngineOptions } from "./options.ts"
import type { Registration } from "./Reconciler.ts"
import type { Claimed, KindRoom } from "./WorkStore.ts"

/** A claim takes at most this many of a kind, */
const batchSize = 250
/** and this many while people ask for things: what is under way for one statement is in the way of theirs. */
const smallBatchSize = 64
/** Reconciles started without letting anything else run: more would make announcements wait. */
export const sliceSize = 32
/** Milliseconds for which routine claims leave what was asked for to urgent ones, which are smaller and answered sooner. */
export const leaveMs = 100
/** What somebody asked for may take this share of a kind's room beyond what routine work filled. */
const urgentShare = 1 / 8

export interface Rooms {
  /** For claims. */
  readonly free: (urgent: boolean) => ReadonlyArray<KindRoom>
  /** For looks without a lease, which are routine. */
  readonly forLooks: () => { readonly rooms: ReadonlyArray<LookRoom>; readonly most: number }
  /**
   * Splits what was loaded: what is over an organization's share, or over the room that another lane filled meanwhile, is
   * surplus.
   */
  readonly within: (
    loaded: ReadonlyArray<Claimed>,
    urgent: boolean
  ) => { readonly mine: ReadonlyArray<Claimed>; readonly surplus: Array<Claimed> }
}

export const makeRooms = (
  running: ReadonlyMap<string, Running>,
  /** How many of them count. */
  busy: () => number,
  /** Whether somebody has asked for something just now. */
  isAsked: () => boolean,
  registrations: ReadonlyMap<string, Registration>,
  options: EngineOptions,
  region: string
): Rooms => {
  /** How many of one organization, or of one kind, run here. */
  const held = (kind: string) => {
    const orgs = new Map<string, number>()
    let sum = 0
    for (const { claimed, busy: counts } of running.values()) {
      if (!counts || claimed.kind !== kind) continue
      orgs.set(claimed.orgId, (orgs.get(claimed.orgId) ?? 0) + 1)
      sum++
    }
    return { orgs, sum }
  }
  const limit = (room: number, urgent: boolean) => (urgent ? Math.ceil(room * (1 + urgentShare)) : room)
  const orgShare = (concurrency: number) => Math.max(1, Math.ceil(concurrency * options.orgShare))
  const freeInAll = (urgent: boolean) => limit(options.concurrency, urgent) - busy()
  const freeOf = ({ concurrency }: Registration, sum: number, urgent: boolean) =>
    Math.min(
      freeInAll(urgent),
      urgent ? sliceSize : isAsked() ? smallBatchSize : batchSize,
      limit(concurrency, urgent) - sum
    )

  return {
    free: (urgent) => {
      const list: Array<KindRoom> = []
      for (const registration of registrations.values()) {
        const { kind, concurrency } = registration
        const { orgs, sum } = held(kind.name)
        const room = freeOf(registration, sum, urgent)
        const share = orgShare(limit(concurrency, urgent))
        const fullOrgs = [...orgs].filter(([, n]) => n >= share).map(([org]) => org)
        const pool = kind.placement === "host" ? region : anyPool
        if (room > 0)
          list.push({ kind: kind.name, pool, room, fullOrgs, ...(urgent ? { urgent } : { leaveMs }) })
      }
      return list
    },
    forLooks: () => ({
      most: freeInAll(false),
      rooms: [...registrations.values()].flatMap((registration) => {
        const { orgs, sum } = held(registration.kind.name)
        const room = freeOf(registration, sum, false)
        const share = orgShare(registration.concurrency)
        const orgRoom = (orgId: string) => share - (orgs.get(orgId) ?? 0)
        return room > 0 ? [{ kind: registration.kind.name, room, orgRoom }] : []
      })
    }),
    within: (loaded, urgent) => {
      const kinds = new Map([...new Set(loaded.map((one) => one.kind))].map((kind) => [kind, held(kind)]))
      let free = freeInAll(urgent)
      const mine: Array<Claimed> = []
      const surplus: Array<Claimed> = []
      for (const one of loaded) {
        const most = limit(registrations.get(one.kind)?.concurrency ?? 1, urgent)
        const now = kinds.get(one.kind)!
        const n = now.orgs.get(one.orgId) ?? 0
        if (free <= 0 || now.sum >= most || n >= orgShare(most)) surplus.push(one)
        else {
          now.orgs.set(one.orgId, n + 1)
          now.sum++
          free--
          mine.push(one)
        }
      }
      return { mine, surplus }
    }
  }
}
