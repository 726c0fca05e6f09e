/** Operations on custom domains, and on who may see what is at addresses. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { Domains } from "#src/domains/api.ts"
import { Access } from "#src/visitors/api.ts"
import { clientOf } from "./call.ts"

export const { domains, access } = Effect.runSync(clientOf(HttpApi.make("svc").add(Domains, Access)))
