/** Operations of the first screens, by the definitions that the server is made of. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { AuditLog } from "#src/organizations/api/audit.ts"
import { Members } from "#src/organizations/api/members.ts"
import { Projects } from "#src/projects/api.ts"
import { Resources } from "#src/resources/api.ts"
import { Me } from "#src/system/api.ts"
import { clientOf } from "./call.ts"

export const client = Effect.runSync(
  clientOf(HttpApi.make("svc").add(Me, Resources, Projects, Members, AuditLog))
)
