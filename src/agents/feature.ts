/** What people let agents do for them: OAuth 2.1 for the command line and for MCP clients, and the grants it ends in. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { AgentGrants } from "./api.ts"

export const agents = defineFeature({
  groups: [AgentGrants],
  // A code, a verifier or a token may stand in whatever is sent there.
  untraced: ["/agent/authorize", "/oauth/"],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).grants] })
})
