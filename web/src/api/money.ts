/** Operations on budgets, AI gateways and customer payments. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { AiGateways } from "#src/ai-gateways/api.ts"
import { Budgets } from "#src/budgets/api.ts"
import { CustomerPayments } from "#src/payments/api.ts"
import { clientOf } from "./call.ts"

export const { budgets, aiGateways, customerPayments } = Effect.runSync(
  clientOf(HttpApi.make("svc").add(Budgets, AiGateways, CustomerPayments))
)
