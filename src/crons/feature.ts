/** Cron jobs: calls of applications and messages to queues, by a schedule. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Crons } from "./api.ts"

export const crons = defineFeature({
  groups: [Crons],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).crons] })
})
