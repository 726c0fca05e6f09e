/** Who somebody is: signing in by password, mail or provider, sessions, and the pages for it. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Me } from "#src/system/api.ts"
import { Sessions, SignIn } from "./api.ts"

export const identity = defineFeature({
  groups: [Me, Sessions],
  publicGroups: [SignIn],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { login, logout, whoami } = await import("./commands.ts")
    return { commands: [login, logout, whoami] }
  }
})
