/** What projects spend, and may. What one may spend is said by operations of projects. */
import { defineFeature } from "#src/feature.ts"
import { Budgets } from "./api.ts"

export const budgets = defineFeature({
  groups: [Budgets],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables
})
