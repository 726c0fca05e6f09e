import * as Layer from "effect/Layer"
import * as backupDestination from "#reconcilers/backup-destination.ts"
import * as destinationHandlers from "#src/api/backup-destinations.ts"
import * as handlers from "#src/api/backups.ts"
import type { BackupDestinations } from "#src/api/definition/backup-destinations.ts"
import type { Backups, Databases } from "#src/api/definition/backups.ts"
import type { Server } from "#src/feature.ts"
import { PostgresServers } from "#src/infra/PostgresServers.ts"
import * as runner from "./runner.ts"
import * as services from "./services.ts"

export const server: Server<typeof Databases | typeof Backups | typeof BackupDestinations> = {
  handlers: Layer.mergeAll(handlers.layerDatabases, handlers.layerBackups, destinationHandlers.layer).pipe(
    Layer.provide(services.layer)
  ),
  reconcilers: backupDestination.layer.pipe(Layer.provide(services.layer)),
  loops: runner.layer.pipe(Layer.provide([services.layer, PostgresServers.layer]))
}
