/** Product telemetry: how the platform comes to be used. Nobody tells anything unless operator and user want it. */
import { type Commands, defineFeature } from "#src/feature.ts"
import { ProductTelemetry, TelemetryIntake } from "./api.ts"

export const telemetry = defineFeature({
  groups: [ProductTelemetry],
  publicGroups: [TelemetryIntake],
  server: async () => (await import("./server.ts")).server,
  settings: async () => (await import("./settings.ts")).settings,
  tables: async () => (await import("./tables.ts")).tables,
  commands: async (): Promise<Commands> => ({ commands: [(await import("./commands.ts")).telemetry] })
})
