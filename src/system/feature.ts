/** The control plane itself: whether it works, and how to verify it. */

import { defineFeature } from "#src/feature.ts"
import { System } from "./api.ts"

export const system = defineFeature({
  publicGroups: [System],
  server: async () => (await import("./server.ts")).server
})
