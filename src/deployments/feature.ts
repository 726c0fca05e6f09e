/** Deployments: versions of apps on their way to answer requests. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { Deployments } from "./api.ts"

export const deployments = defineFeature({
  groups: [Deployments],
  settings: async () => (await import("#src/builds/settings.ts")).settings,
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { deploy, deployments, promote, rollback } = await import("./commands.ts")
    const { init, link } = await import("./folder-commands.ts")
    return { commands: [init, link, deploy, deployments, rollback, promote] }
  }
})
