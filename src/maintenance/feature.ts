/** Looking after projects on a schedule: what is not as it should be, and what may be done about it without a person. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Maintenance } from "./api.ts"

export const maintenance = defineFeature({
  groups: [Maintenance],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).maintenance] })
})
