/** Every kind that can be made real. A kind is one line here and one in `schemas/index.ts`. */
import * as Layer from "effect/Layer"
import * as backupDestination from "./backup-destination.ts"
import * as cache from "./cache.ts"
import * as cron from "./cron.ts"
import * as database from "./database.ts"
import * as databaseBranch from "./database-branch.ts"
import * as envVariables from "./env-variables.ts"
import * as environment from "./environment.ts"
import * as execution from "./execution.ts"
import * as project from "./project.ts"
import * as queue from "./queue.ts"

export const reconcilers = Layer.mergeAll(
  project.layer,
  backupDestination.layer,
  environment.layer,
  envVariables.layer,
  database.layer,
  databaseBranch.layer,
  cache.layer,
  queue.layer,
  cron.layer,
  execution.layer
)
