/** Apps: what answers at the addresses of environments. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Apps } from "./api.ts"

export const apps = defineFeature({
  groups: [Apps],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { apps, logs, ps } = await import("./commands.ts")
    const { exec } = await import("./exec-command.ts")
    const { run } = await import("./run-command.ts")
    return { commands: [ps, logs, exec, run, apps] }
  }
})
