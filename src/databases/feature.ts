/** The database of an environment. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Database } from "./api.ts"

export const databases = defineFeature({
  groups: [Database],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).database]
  })
})
