/** The edge: managed addresses with TLS for every environment, and what decides who gets where. */
import * as Config from "effect/Config"
import { type Commands, defineFeature } from "#src/feature.ts"

export const edge = defineFeature({
  server: async () => (await import("./server.ts")).server,
  settings: async () =>
    Config.all([
      (await import("./settings.ts")).settings,
      (await import("./certificates/settings.ts")).certificateSettings
    ]),
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({
    commands: [],
    admin: [(await import("./certificates/admin-commands.ts")).adminCertificates]
  })
})
