/** Customer payments: an app's owner connects a Stripe account, and what happens in it is mirrored. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { CustomerPayments } from "./api.ts"

export const payments = defineFeature({
  groups: [CustomerPayments],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).payments] })
})
