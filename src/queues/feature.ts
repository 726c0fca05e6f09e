/** Queues of messages, and their delivery to applications. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Queues } from "./api.ts"

export const queues = defineFeature({
  groups: [Queues],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).queues]
  })
})
