/** The API for agents: its operations as two tools of the Model Context Protocol, one to find them and one to run them. */
import { type Commands, defineFeature } from "#src/feature.ts"

export const mcp = defineFeature({
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).mcp] })
})
