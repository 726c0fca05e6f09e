/** Alerts: rules about what is measured, and telling people when one is met. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Alerts } from "./api.ts"

export const alerts = defineFeature({
  groups: [Alerts],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).alerts] })
})
