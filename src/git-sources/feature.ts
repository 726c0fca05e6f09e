/** Git sources: the organization is kept what a manifest in a repository says. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { GitSources } from "./api.ts"

export const gitSources = defineFeature({
  groups: [GitSources],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).gitSources] })
})
