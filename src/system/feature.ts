/** The control plane itself: whether it works, and how to verify it. */
import { System } from "#src/api/definition/system.ts"
import { defineFeature } from "#src/feature.ts"

export const system = defineFeature({
  publicGroups: [System],
  server: async () => (await import("./server.ts")).server
})
