/** Backups of databases: on this machine, and copies of them at destinations elsewhere. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Backups, Databases } from "./api.ts"
import { BackupDestinations } from "./destinations/api.ts"

export const backups = defineFeature({
  groups: [Databases, Backups, BackupDestinations],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const [{ backups }, { destinations }] = await Promise.all([
      import("./commands.ts"),
      import("./destinations/commands.ts")
    ])
    return { commands: [backups, destinations] }
  }
})
