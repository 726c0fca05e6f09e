/** Backups of databases: on this machine, and copies of them at destinations elsewhere. */
import { BackupDestinations } from "#src/api/definition/backup-destinations.ts"
import { Backups, Databases } from "#src/api/definition/backups.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const backups = defineFeature({
  groups: [Databases, Backups, BackupDestinations],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const [{ backups }, { destinations }] = await Promise.all([
      import("#src/cli/backup-commands.ts"),
      import("#src/cli/destination-commands.ts")
    ])
    return { commands: [backups, destinations] }
  }
})
