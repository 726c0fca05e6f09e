/** What is kept of databases, and restoring it: for backups themselves, and for databases and their branches. */
import * as Layer from "effect/Layer"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { WalRanges } from "./archive/WalRanges.ts"
import { Destinations } from "./destinations/Destinations.ts"
import { remotes } from "./destinations/stored-remotes.ts"
import * as health from "./health.ts"
import { Jobs } from "./Jobs.ts"
import { Ledger } from "./Ledger.ts"
import { Repository } from "./repository/Repository.ts"

export const layer = Layer.mergeAll(Repository.layer, health.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Ledger.layer, WalRanges.layer, Jobs.layer)),
  Layer.provideMerge(remotes),
  Layer.provideMerge(Destinations.layer),
  Layer.provide(PostgresServers.layer)
)
