import * as Layer from "effect/Layer"
import * as database from "#reconcilers/database/database.ts"
import * as backups from "#src/backups/services.ts"
import type { Server } from "#src/feature.ts"
import { Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import type { Database } from "./api.ts"
import * as handlers from "./handlers.ts"

export const server: Server<typeof Database> = {
  handlers: handlers.layer,
  reconcilers: database.layer.pipe(Layer.provide([PostgresServers.layer, Hydrations.layer, backups.layer]))
}
