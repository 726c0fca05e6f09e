/** Containers that run once: executions and their logs. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Executions } from "./api.ts"

export const executions = defineFeature({
  groups: [Executions],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).executions]
  })
})
