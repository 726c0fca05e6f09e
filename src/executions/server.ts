import * as Layer from "effect/Layer"
import * as execution from "#reconcilers/execution/execution.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import * as leads from "#src/apps/keep-leads.ts"
import * as environments from "#src/apps/services.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import type { Server } from "#src/feature.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import type { Executions as Operations } from "./api.ts"
import { Executions } from "./Executions.ts"
import * as handlers from "./handlers.ts"
import { Logs } from "./Logs.ts"
import * as services from "./services.ts"
import * as tidy from "./tidy.ts"

const variables = AppVariables.layer.pipe(Layer.provide(environments.layer))
const prices = Layer.mergeAll(Budgets.layer, Catalog.layer)

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(
    Layer.provide([Executions.layer, Deployments.layer, Logs.layer, ContainerEngine.layer, prices])
  ),
  reconcilers: execution.layer.pipe(
    Layer.provide([services.layer, prices, variables, environments.layer, Deployments.layer])
  ),
  loops: Layer.mergeAll(tidy.layer, leads.layer).pipe(Layer.provide([services.layer, environments.layer]))
}
