/** Mail: what other features wrote waits in an outbox, and is sent. */
import { defineFeature } from "#src/feature.ts"

export const mail = defineFeature({
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables
})
