/** Prices, limits and regions. Others read it; it has no operations of its own. */
import { defineFeature } from "#src/feature.ts"

export const catalog = defineFeature({
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings
})
