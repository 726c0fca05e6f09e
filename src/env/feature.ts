/** The encrypted variables of environments. */
import { Env } from "#src/api/definition/env.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const env = defineFeature({
  groups: [Env],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({ commands: [(await import("#src/cli/env-commands.ts")).env] })
})
