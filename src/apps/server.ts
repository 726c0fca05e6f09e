import * as Layer from "effect/Layer"
import * as app from "#reconcilers/app/app.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { Server } from "#src/feature.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { AppLogs } from "./AppLogs.ts"
import { Apps } from "./Apps.ts"
import type { Apps as Operations } from "./api.ts"
import * as origins from "./app-origins.ts"
import * as services from "./app-services.ts"
import * as handlers from "./handlers.ts"
import * as tidy from "./tidy.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(
    Layer.provide([
      Apps.layer,
      AppLogs.layer,
      ContainerEngine.layer,
      Installation.layer,
      EdgeSites.layer,
      origins.layer
    ])
  ),
  reconcilers: app.layer.pipe(Layer.provide(services.layer)),
  loops: tidy.layer.pipe(Layer.provide(services.layer))
}
