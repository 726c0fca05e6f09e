import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import type { ProductTelemetry, TelemetryIntake } from "./api.ts"
import * as handlers from "./handlers.ts"
import { TelemetryRecords } from "./TelemetryRecords.ts"

export const server: Server<typeof ProductTelemetry | typeof TelemetryIntake> = {
  handlers: handlers.layer.pipe(Layer.provide(TelemetryRecords.layer))
}
