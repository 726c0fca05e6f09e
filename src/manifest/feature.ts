/** Whole projects from one document: plan, apply, export. */
import { ApplyRequest, Manifest, ManifestDocument } from "#src/api/definition/manifest.ts"
import { type Commands, defineFeature } from "#src/feature.ts"

export const manifest = defineFeature({
  groups: [Manifest],
  schemas: [ManifestDocument, ApplyRequest],
  server: async () => (await import("./server.ts")).server,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => {
    const { apply, exportCommand, manifest, plan } = await import("#src/cli/manifest-commands.ts")
    return { commands: [plan, apply, exportCommand, manifest] }
  }
})
