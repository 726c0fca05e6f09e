/** Operations on databases, their backups and their branches. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { Backups, Databases } from "#src/backups/api.ts"
import { DatabaseBranches } from "#src/branches/api.ts"
import { Database } from "#src/databases/api.ts"
import { clientOf } from "./call.ts"

export const { database, databases, backups, databaseBranches } = Effect.runSync(
  clientOf(HttpApi.make("svc").add(Database, Databases, Backups, DatabaseBranches))
)
