/** Branches of databases: copies that are made from a database as it is, or as it was. Their commands are those of databases. */

import { defineFeature } from "#src/feature.ts"
import { DatabaseBranches } from "./api.ts"

export const branches = defineFeature({
  groups: [DatabaseBranches],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables
})
