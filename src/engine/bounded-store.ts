/** The work store, with an end to every wait for it (`answered.ts`): a loop of the engine never stands still for ever. */
import { answered } from "./answered.ts"
import type { EngineOptions } from "./options.ts"
import type { WorkStore } from "./WorkStore.ts"

export const boundedStore = (
  store: WorkStore["Service"],
  { leaseMs }: Pick<EngineOptions, "leaseMs">
): WorkStore["Service"] => {
  // Longer than the server lets a statement run: what is only slow is waited for.
  const patience = 2 * leaseMs
  return {
    claim: (rooms, ms) => answered("lease what is due", patience)(store.claim(rooms, ms)),
    claimOne: (orgId, uid, ms, pool) =>
      answered("lease one resource", patience)(store.claimOne(orgId, uid, ms, pool)),
    // In time for another try before the lease ends.
    heartbeat: (leases, ms) => answered("extend leases", leaseMs / 2)(store.heartbeat(leases, ms)),
    record: (results) => answered("record results", patience)(store.record(results)),
    release: (claimed) => answered("take leases back", patience)(store.release(claimed)),
    join: (member, ms) => answered("say that this process is alive", leaseMs / 2)(store.join(member, ms)),
    leave: (id) => answered("say that this process goes", patience)(store.leave(id)),
    kept: (pool, slots) => answered("tell what is kept", patience)(store.kept(pool, slots)),
    look: (kept) => answered("load what is looked at", patience)(store.look(kept)),
    wake: (found) => answered("make due what was found", patience)(store.wake(found)),
    cascade: (orgId, uid) => answered("delete what a resource contains", patience)(store.cascade(orgId, uid)),
    nextDueIn: (kinds) => answered("tell what is due next", patience)(store.nextDueIn(kinds)),
    stats: answered("count what waits", patience)(store.stats)
  }
}
