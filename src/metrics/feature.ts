/** Measurements of everything that runs: samplers, what is kept of them, and who may read it. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Metrics } from "./api.ts"

export const metrics = defineFeature({
  groups: [Metrics],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).metrics] })
})
