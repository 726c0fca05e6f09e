/** What other features use of agents: the screen, the MCP endpoint. */
import * as Layer from "effect/Layer"
import { Mail } from "#src/mail/Mail.ts"
import { AuthorizationRequests } from "./AuthorizationRequests.ts"
import { Clients } from "./Clients.ts"

export const authorizationRequests = AuthorizationRequests.layer.pipe(
  Layer.provide([Clients.layer, Mail.layer])
)
