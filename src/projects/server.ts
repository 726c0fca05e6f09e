import * as Layer from "effect/Layer"
import * as environment from "#reconcilers/environment.ts"
import * as project from "#reconcilers/project.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { Server } from "#src/feature.ts"
import { AppServiceTokens } from "./AppServiceTokens.ts"
import type { Environments, Projects } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Projects | typeof Environments> = {
  handlers: Layer.mergeAll(handlers.layerProjects, handlers.layerEnvironments).pipe(
    Layer.provide([Budgets.layer, AppServiceTokens.layer])
  ),
  reconcilers: Layer.mergeAll(project.layer, environment.layer.pipe(Layer.provide(EdgeSites.layer)))
}
