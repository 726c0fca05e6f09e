/** Redis servers for applications. */
import { Caches } from "#src/api/definition/caches.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const caches = defineFeature({
  groups: [Caches],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("#src/cli/cache-commands.ts")).caches]
  })
})
