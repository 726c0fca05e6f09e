/** The database of an environment. */
import { Database } from "#src/api/definition/database.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const databases = defineFeature({
  groups: [Database],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("#src/cli/database-commands.ts")).database]
  })
})
