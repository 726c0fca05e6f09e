/** Whole projects from one document: plan, apply, export. */

import { type Commands, defineFeature } from "#src/feature.ts"
import { ApplyRequest, Manifest, ManifestDocument } from "./api.ts"

export const manifest = defineFeature({
  groups: [Manifest],
  schemas: [ManifestDocument, ApplyRequest],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { apply, exportCommand, manifest, plan } = await import("./commands.ts")
    return { commands: [plan, apply, exportCommand, manifest] }
  }
})
