/** Previews of pull requests: an environment with an address, and perhaps a copy of a database. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Previews } from "./api.ts"

export const previews = defineFeature({
  groups: [Previews],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).previews] })
})
