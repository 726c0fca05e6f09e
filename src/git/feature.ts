/** Repositories: connections to forges, what these tell of, and deployments of what is pushed. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { GitConnections } from "./api.ts"

export const git = defineFeature({
  groups: [GitConnections],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).gitConnections] })
})
