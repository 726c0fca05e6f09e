/** Operations of single services, loaded with the first page of one. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { Alerts } from "#src/alerts/api.ts"
import { Apps } from "#src/apps/api.ts"
import { Caches } from "#src/caches/api.ts"
import { Crons } from "#src/crons/api.ts"
import { Database } from "#src/databases/api.ts"
import { Deployments } from "#src/deployments/api.ts"
import { Env } from "#src/env/api.ts"
import { Executions } from "#src/executions/api.ts"
import { Queues } from "#src/queues/api.ts"
import { clientOf } from "./call.ts"

export const services = Effect.runSync(
  clientOf(
    HttpApi.make("svc").add(Queues, Crons, Executions, Caches, Database, Alerts, Apps, Deployments, Env)
  )
)
