/** The dashboard: what the folder `web` is built to, served to browsers. */
import { defineFeature } from "#src/feature.ts"

export const dashboard = defineFeature({
  server: async () => (await import("./server.ts")).server
})
