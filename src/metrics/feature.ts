/** Measurements of everything that runs: samplers, what is kept of them, and who may read it. */
import { defineFeature } from "#src/feature.ts"

export const metrics = defineFeature({
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables
})
