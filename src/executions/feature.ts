/** Containers that run once: executions and their logs. */
import { Executions } from "#src/api/definition/executions.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const executions = defineFeature({
  groups: [Executions],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("#src/cli/execution-commands.ts")).executions]
  })
})
