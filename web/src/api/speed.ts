/** Operations on what visitors' browsers measured. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { SpeedInsights } from "#src/speed-insights/api.ts"
import { clientOf } from "./call.ts"

export const { speedInsights } = Effect.runSync(clientOf(HttpApi.make("svc").add(SpeedInsights)))
