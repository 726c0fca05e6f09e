import * as Layer from "effect/Layer"
import * as database from "#reconcilers/database.ts"
import * as handlers from "#src/api/database.ts"
import type { Database } from "#src/api/definition/database.ts"
import * as backups from "#src/backups/services.ts"
import type { Server } from "#src/feature.ts"
import { Hydrations } from "#src/infra/Hydrations.ts"
import { PostgresServers } from "#src/infra/PostgresServers.ts"

export const server: Server<typeof Database> = {
  handlers: handlers.layer,
  reconcilers: database.layer.pipe(Layer.provide([PostgresServers.layer, Hydrations.layer, backups.layer]))
}
