import * as Layer from "effect/Layer"
import * as backupDestination from "#reconcilers/backup-destination.ts"
import type { Server } from "#src/feature.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import type { Backups, Databases } from "./api.ts"
import type { BackupDestinations } from "./destinations/api.ts"
import * as destinationHandlers from "./destinations/handlers.ts"
import * as handlers from "./handlers.ts"
import * as runner from "./runner.ts"
import * as services from "./services.ts"

export const server: Server<typeof Databases | typeof Backups | typeof BackupDestinations> = {
  handlers: Layer.mergeAll(handlers.layerDatabases, handlers.layerBackups, destinationHandlers.layer).pipe(
    Layer.provide(services.layer)
  ),
  reconcilers: backupDestination.layer.pipe(Layer.provide(services.layer)),
  loops: runner.layer.pipe(Layer.provide([services.layer, PostgresServers.layer]))
}
