/** The encrypted variables of environments. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Env } from "./api.ts"

export const env = defineFeature({
  groups: [Env],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).env] })
})
