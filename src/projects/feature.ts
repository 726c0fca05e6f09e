/** Projects and their environments. */
import { Environments, Projects } from "#src/api/definition/projects.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const projects = defineFeature({
  groups: [Projects, Environments],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => {
    const { environments, projects } = await import("#src/cli/project-commands.ts")
    return { commands: [projects, environments] }
  }
})
