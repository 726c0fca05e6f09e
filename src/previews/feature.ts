/** Previews of pull requests: an environment with an address, and perhaps a copy of a database. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Previews } from "./api.ts"

export const previews = defineFeature({
  groups: [Previews],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).previews] })
})
