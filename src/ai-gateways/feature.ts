/** AI gateways: OpenAI-compatible addresses with neutral models and budgets that hold. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { AiGateways } from "./api.ts"
import { described } from "./described.ts"

export const aiGateways = defineFeature({
  groups: [AiGateways],
  described,
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [(await import("./commands.ts")).ai],
    admin: [(await import("./admin-commands.ts")).adminAi]
  })
})
