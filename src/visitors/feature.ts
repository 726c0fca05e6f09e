/** Who may see an environment at its addresses: the policy, invited addresses, signing in, and what lets visitors in. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Access } from "./api.ts"

export const visitors = defineFeature({
  groups: [Access],
  // A code stands in what is answered there, and what a browser is bound by in what it asks.
  untraced: ["/access"],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const [{ access }, { open }] = await Promise.all([import("./commands.ts"), import("./open-command.ts")])
    return { commands: [access, open] }
  }
})
