/** Operations on measurements. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { Metrics } from "#src/metrics/api.ts"
import { clientOf } from "./call.ts"

export const { metrics } = Effect.runSync(clientOf(HttpApi.make("svc").add(Metrics)))
