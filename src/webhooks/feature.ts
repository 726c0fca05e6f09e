/** Webhooks: whoever wants to be told of what happens is told. */
import { Webhooks } from "#src/api/definition/webhooks.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const webhooks = defineFeature({
  groups: [Webhooks],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("#src/cli/webhook-commands.ts")).webhooks]
  })
})
