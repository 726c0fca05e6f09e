/**
 * The work store, with an end to every wait for it. Its server ends statements that take long, but nobody tells this
 * process when the network between them swallows the answer: a loop that waited for one would stand still for ever, and
 * with it its leases or its results. What was not answered in time counts as failed, and its loop goes on.
 */
import * as Effect from "effect/Effect"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import type { EngineOptions } from "./options.ts"
import type { WorkStore } from "./WorkStore.ts"

export const boundedStore = (
  store: WorkStore["Service"],
  { leaseMs }: Pick<EngineOptions, "leaseMs">
): WorkStore["Service"] => {
  const within =
    (what: string, ms: number) =>
    <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E | StoreUnavailable> =>
      Effect.timeoutOrElse(self, {
        duration: ms,
        orElse: () =>
          Effect.fail(
            new StoreUnavailable({
              message: `The state store was asked to ${what} and did not answer in time`
            })
          )
      })
  // Longer than the server lets a statement run: what is only slow is waited for.
  const patience = 2 * leaseMs
  return {
    claim: (rooms, ms) => within("lease what is due", patience)(store.claim(rooms, ms)),
    claimOne: (orgId, uid, ms, pool) =>
      within("lease one resource", patience)(store.claimOne(orgId, uid, ms, pool)),
    // In time for another try before the lease ends.
    heartbeat: (leases, ms) => within("extend leases", leaseMs / 2)(store.heartbeat(leases, ms)),
    record: (results) => within("record results", patience)(store.record(results)),
    release: (claimed) => within("take leases back", patience)(store.release(claimed)),
    cascade: (orgId, uid) => within("delete what a resource contains", patience)(store.cascade(orgId, uid)),
    nextDueIn: (kinds) => within("tell what is due next", patience)(store.nextDueIn(kinds)),
    stats: within("count what waits", patience)(store.stats)
  }
}
