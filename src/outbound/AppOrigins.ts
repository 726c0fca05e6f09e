/**
 * Where the app of an environment answers when this platform runs it. The feature that runs apps provides it; without one
 * no environment has such an app. A reference, so that who makes calls need not know of apps.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AppOrigins {
  /** An app that sleeps is woken, and answered for once it is up. Undefined: no app of ours answers there. */
  readonly find: (
    orgId: string,
    environmentUid: string
  ) => Effect.Effect<string | undefined, StoreUnavailable>
}

export const AppOrigins = Context.Reference<AppOrigins>("svc/outbound/AppOrigins", {
  defaultValue: () => ({ find: () => Effect.succeed(undefined) })
})
