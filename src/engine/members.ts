/**
 * Which process looks at what. Settled resources fall into slots by their uid, and the slots of each pool are shared out
 * among the processes that are alive and serve it. Every process computes the same from the same list of them; as long as
 * their lists differ, a resource may be looked at twice or late, and nothing worse: a look writes nothing.
 */
import type { Member } from "./WorkStore.ts"

/** Few enough to be listed, and enough that shares differ by a few percent only. */
export const slotCount = 256

/** By the last byte of the uid, like `svc_slot` in the store. */
export const slotOf = (uid: string): number => Number.parseInt(uid.slice(-2), 16)

/**
 * The slots of one of `members`, whom every one of them serves. Each slot goes to whoever bids most for it and has room:
 * nobody has more than a fair share, and when one comes or goes, most slots stay where they are.
 */
export const slotsOf = (id: string, members: ReadonlyArray<Member>): ReadonlySet<number> => {
  const share = Math.ceil(slotCount / Math.max(1, members.length))
  const ids = members.map((member) => member.id).sort()
  const held = new Map(ids.map((one): [string, number] => [one, 0]))
  const mine = new Set<number>()
  for (let slot = 0; slot < slotCount; slot++) {
    let best: string | undefined
    let most = -1
    for (const one of ids) {
      if (held.get(one)! >= share) continue
      const bid = bidOf(one, slot)
      if (bid <= most) continue
      best = one
      most = bid
    }
    if (best === undefined) continue
    held.set(best, held.get(best)! + 1)
    if (best === id) mine.add(slot)
  }
  return mine
}

/** FNV-1a with the final mixing of MurmurHash3: any hash will do that all releases compute alike. */
const bidOf = (id: string, slot: number): number => {
  let hash = 0x811c9dc5 ^ slot
  for (let i = 0; i < id.length; i++) hash = Math.imul(hash ^ id.charCodeAt(i), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}
