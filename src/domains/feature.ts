/** Custom domains: host names of customers, proved by DNS and served with a certificate. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Domains } from "./api.ts"

export const domains = defineFeature({
  groups: [Domains],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).domains] })
})
