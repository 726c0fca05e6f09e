/** What the reconciler of apps works with, besides the store and the machine. */
import * as Layer from "effect/Layer"
import { Deployments } from "#src/deployments/Deployments.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { AppFollowers, AppLogs } from "./AppLogs.ts"
import { Apps } from "./Apps.ts"
import { AppVariables } from "./AppVariables.ts"
import * as environments from "./services.ts"

export const layer = AppFollowers.layer.pipe(
  Layer.provide(AppLogs.layer),
  Layer.provideMerge(Layer.mergeAll(Apps.layer, ContainerEngine.layer)),
  Layer.provideMerge(
    Layer.mergeAll(
      Deployments.layer,
      EdgeNodes.layer,
      Installation.layer,
      AppVariables.layer.pipe(Layer.provide(environments.layer))
    )
  )
)
