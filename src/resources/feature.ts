/** Every resource whatever its kind: states, events, changes, and what an operator does by hand. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { Resources } from "./api.ts"

export const resources = defineFeature({
  groups: [Resources],
  server: async () => (await import("./server.ts")).server,
  commands: async (): Promise<Commands> => {
    const [{ diff, events, show, status, wait }, { abandon, pause, protect, resume, retry }] =
      await Promise.all([import("./status-commands.ts"), import("./operator-commands.ts")])
    return { commands: [status, show, wait, events, diff, retry, pause, resume, protect, abandon] }
  }
})
