import * as Layer from "effect/Layer"
import * as cron from "#reconcilers/cron.ts"
import type { Server } from "#src/feature.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { messages } from "#src/queues/services.ts"
import type { Crons as Operations } from "./api.ts"
import { Crons } from "./Crons.ts"
import { DueRuns } from "./DueRuns.ts"
import * as handlers from "./handlers.ts"
import * as runner from "./runner.ts"

export const server: Server<typeof Operations> = {
  handlers: handlers.layer.pipe(Layer.provide(Crons.layer)),
  reconcilers: cron.layer.pipe(Layer.provide([Crons.layer, QueueTables.layer])),
  loops: runner.layer.pipe(Layer.provide([DueRuns.layer, messages]))
}
