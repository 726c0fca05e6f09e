/** Who somebody is: signing in by password, mail or provider, sessions, and the pages for it. */
import { Sessions, SignIn } from "#src/api/definition/sign-in.ts"
import { Me } from "#src/api/definition/system.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const identity = defineFeature({
  groups: [Me, Sessions],
  publicGroups: [SignIn],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { login, logout, whoami } = await import("#src/cli/access-commands.ts")
    return { commands: [login, logout, whoami] }
  }
})
