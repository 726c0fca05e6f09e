/** How fast a project's pages are for their visitors: what browsers measure, and reports on it. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { SpeedInsights } from "./api.ts"
import { described } from "./described.ts"

export const speedInsights = defineFeature({
  groups: [SpeedInsights],
  described,
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).speed] })
})
