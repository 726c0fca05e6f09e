import * as Layer from "effect/Layer"
import * as databaseBranch from "#reconcilers/database/branch.ts"
import * as backups from "#src/backups/services.ts"
import type { Server } from "#src/feature.ts"
import { Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import type { DatabaseBranches } from "./api.ts"
import * as handlers from "./handlers.ts"
import * as maintenance from "./maintenance.ts"
import { Promotions } from "./Promotions.ts"
import { Sources } from "./Sources.ts"

export const server: Server<typeof DatabaseBranches> = {
  handlers: handlers.layer.pipe(Layer.provide([Promotions.layer, backups.layer])),
  reconcilers: databaseBranch.layer.pipe(
    Layer.provide([PostgresServers.layer, Hydrations.layer, Sources.layer, backups.layer])
  ),
  loops: maintenance.layer
}
