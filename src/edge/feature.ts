/** The edge: managed addresses with TLS for every environment, and what decides who gets where. */
import { defineFeature } from "#src/feature.ts"

export const edge = defineFeature({
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables
})
