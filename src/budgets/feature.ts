/** What projects spend, and may. Its operations are those of projects. */
import { defineFeature } from "#src/feature.ts"

export const budgets = defineFeature({
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables
})
