/** Redis servers for applications. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Caches } from "./api.ts"

export const caches = defineFeature({
  groups: [Caches],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).caches]
  })
})
