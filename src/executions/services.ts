/** What the reconciler of executions works with, besides the store and the machine. */
import * as Layer from "effect/Layer"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Followers } from "./Followers.ts"
import { Images } from "./Images.ts"
import { Logs } from "./Logs.ts"
import { Pulls } from "./Pulls.ts"
import { Runs } from "./Runs.ts"

export const layer = Layer.mergeAll(Pulls.layer, Followers.layer.pipe(Layer.provide(Logs.layer))).pipe(
  Layer.provideMerge(
    Layer.mergeAll(Images.layer, Runs.layer, Installation.layer).pipe(
      Layer.provideMerge(ContainerEngine.layer)
    )
  )
)
