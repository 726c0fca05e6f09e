/** Requests for an app that is asleep wait until HAProxy serves it, bounded in number and time. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { EdgeSites } from "../EdgeSites.ts"
import { settings } from "../settings.ts"
import { Routes } from "./Routes.ts"
import type { SiteRow } from "./rows.ts"

export const isServed = (site: SiteRow | undefined): boolean =>
  site !== undefined && !site.asleep && site.target !== null

export const makeHold = Effect.gen(function* () {
  const routes = yield* Routes
  const sites = yield* EdgeSites
  const { holdSeconds, heldRequests } = yield* settings
  let held = 0

  /** True once the site is served, false when it is not in time, or too many wait already. */
  return (site: SiteRow): Effect.Effect<boolean> =>
    Effect.suspend(() => {
      if (held >= heldRequests) return Effect.succeed(false)
      const { environmentUid, orgId } = site
      const served = Deferred.makeUnsafe<boolean>()
      const look = () => {
        // Before HAProxy knows it, a request would come back from there.
        if (routes.isAhead()) return
        const now = routes.sites.get(environmentUid)
        if (isServed(now)) Deferred.doneUnsafe(served, Exit.succeed(true))
        // Nobody will wake what is gone or does not sleep.
        else if (now?.asleep !== true) Deferred.doneUnsafe(served, Exit.succeed(false))
      }
      held++
      const stop = routes.watch(look)
      look()
      const wake = site.asleep ? sites.requestWake({ orgId, environmentUid }) : Effect.void
      return wake.pipe(
        // Whoever asks next may be heard; and it may be awake on its own.
        Effect.catch((error) => Effect.logWarning("an app could not be asked to wake", error)),
        Effect.andThen(Deferred.await(served)),
        Effect.timeoutOrElse({
          duration: `${holdSeconds} seconds`,
          orElse: () => Effect.succeed(false)
        }),
        Effect.ensuring(
          Effect.sync(() => {
            held--
            stop()
          })
        )
      )
    })
})
