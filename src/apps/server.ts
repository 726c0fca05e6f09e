import * as Layer from "effect/Layer"
import * as app from "#reconcilers/app/app.ts"
import type { Server } from "#src/feature.ts"
import { AppLogs } from "./AppLogs.ts"
import { Apps } from "./Apps.ts"
import type { Apps as Operations } from "./api.ts"
import * as services from "./app-services.ts"
import * as handlers from "./handlers.ts"
import * as tidy from "./tidy.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide([Apps.layer, AppLogs.layer])),
  reconcilers: app.layer.pipe(Layer.provide(services.layer)),
  loops: tidy.layer.pipe(Layer.provide(services.layer))
}
