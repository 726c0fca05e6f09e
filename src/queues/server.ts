import * as Layer from "effect/Layer"
import * as queue from "#reconcilers/queue.ts"
import type { Server } from "#src/feature.ts"
import type { Queues } from "./api.ts"
import * as consume from "./consume.ts"
import * as handlers from "./handlers.ts"
import { QueueTables } from "./QueueTables.ts"
import { messages } from "./services.ts"
import * as tidy from "./tidy.ts"

export const server: Server<typeof Queues> = {
  handlers: handlers.layer.pipe(Layer.provide(messages)),
  reconcilers: queue.layer.pipe(Layer.provide(QueueTables.layer)),
  loops: Layer.mergeAll(consume.layer, tidy.layer)
}
