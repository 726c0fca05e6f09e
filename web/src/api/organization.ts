/** Operations on what belongs to an organization as a whole: people, keys, webhooks, backup destinations. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { AgentGrants } from "#src/agents/api.ts"
import { BackupDestinations } from "#src/backups/destinations/api.ts"
import { ApiKeys } from "#src/organizations/api/api-keys.ts"
import { Invitations } from "#src/organizations/api/invitations.ts"
import { Webhooks } from "#src/webhooks/api.ts"
import { clientOf } from "./call.ts"

export const organization = Effect.runSync(
  clientOf(HttpApi.make("svc").add(AgentGrants, BackupDestinations, ApiKeys, Invitations, Webhooks))
)
