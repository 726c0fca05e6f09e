import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import { Mail } from "#src/mail/Mail.ts"
import { invitationRecords } from "#src/organizations/services.ts"
import type { Me } from "#src/system/api.ts"
import * as system from "#src/system/handlers.ts"
import type { Sessions as SessionOperations, SignIn } from "./api.ts"
import * as signIn from "./handlers.ts"
import { Identity } from "./Identity.ts"
import { Oidc } from "./Oidc.ts"
import { People } from "./People.ts"
import * as pages from "./pages/routes.ts"
import { Passwords } from "./passwords.ts"
import { Sessions } from "./Sessions.ts"

const services = Identity.layer.pipe(
  Layer.provide([Passwords.layer, Mail.layer]),
  Layer.provideMerge(Layer.mergeAll(People.layer, Sessions.layer, Oidc.layer))
)

export const server: Server<typeof Me | typeof SessionOperations | typeof SignIn> = {
  handlers: Layer.mergeAll(
    system.layerMe,
    Layer.mergeAll(signIn.layerSignIn, signIn.layerSessions).pipe(Layer.provide(services))
  ),
  routes: pages.layer.pipe(Layer.provide([services, invitationRecords, Mail.layer]))
}
