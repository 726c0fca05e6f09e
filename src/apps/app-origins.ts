/** Where apps take calls of the platform itself: at an instance, woken first if it sleeps. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { AppOrigins } from "#src/outbound/AppOrigins.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

/** How long a call waits for an app to wake. */
const patienceMs = 30_000
const lookMs = 200

export const layer = Layer.effect(
  AppOrigins,
  Effect.gen(function* () {
    const sites = yield* EdgeSites
    return {
      find: Effect.fn("AppOrigins.find")(function* (orgId, environmentUid) {
        const key = { orgId, environmentUid }
        const until = (yield* Clock.currentTimeMillis) + patienceMs
        for (;;) {
          const { site } = yield* sites.look(key)
          if (site === undefined || !site.isApp) return undefined
          const { target, asleep } = site
          if (!asleep && target !== undefined) return `http://${target.address}:${target.port}`
          if ((yield* Clock.currentTimeMillis) > until)
            return yield* new StoreUnavailable({ message: "The app did not get ready in time" })
          if (asleep) yield* sites.requestWake(key)
          yield* Effect.sleep(lookMs)
        }
      })
    }
  })
).pipe(Layer.provide(EdgeSites.layer))
