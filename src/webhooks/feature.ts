/** Webhooks: whoever wants to be told of what happens is told. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Webhooks } from "./api.ts"

export const webhooks = defineFeature({
  groups: [Webhooks],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).webhooks]
  })
})
