/** Projects and their environments. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Environments, Projects } from "./api.ts"

export const projects = defineFeature({
  groups: [Projects, Environments],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { environments, projects } = await import("./commands.ts")
    return { commands: [projects, environments] }
  }
})
