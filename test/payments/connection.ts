/** A connection to Stripe as it stands in the store, for tests of what is kept of one. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { AppConfig } from "#src/config.ts"
import { Comparisons } from "#src/payments/Comparisons.ts"
import { Connections } from "#src/payments/Connections.ts"
import { PaymentEvents } from "#src/payments/PaymentEvents.ts"
import { Processor } from "#src/payments/Processor.ts"
import { Projections } from "#src/payments/Projections.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeProject, uuid } from "#test/setup/fixtures.ts"

export const paymentsStore = Layer.mergeAll(
  Connections.layer,
  Projections.layer,
  PaymentEvents.layer,
  Processor.layer,
  Comparisons.layer
).pipe(
  Layer.provideMerge(Resources.layer),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(AppConfig.layerWith({})),
  Layer.provideMerge(testDb()),
  Layer.provide(Logger.layer([]))
)

/** What makes the resource. */
export const connectionChange = (
  place: { readonly projectId: string; readonly production: string },
  uid: string,
  credentialScopes: ReadonlyArray<string> = ["products:read"]
) =>
  ({
    action: "create",
    uid,
    kind: "CustomerPayments",
    projectId: place.projectId,
    environment: "production",
    name: "payments",
    parentUid: place.production,
    spec: {
      credentials: { secretKey: "key", webhookSecret: "secret" },
      credentialScopes,
      allowedRedirectOrigins: [],
      checkedKey: "key"
    },
    managedBy: "api"
  }) as const

/** In a new project of the organization. */
export const newConnection = Effect.fnUntraced(function* (orgId: string) {
  const uid = uuid()
  const place = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
  yield* (yield* Resources).write(orgId, [connectionChange(place, uid)], actor)
  return uid
})
