import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as deliver from "./deliver.ts"
import { Outbox } from "./Outbox.ts"
import { Transport } from "./Transport.ts"

export const server: Server = {
  handlers: Layer.empty,
  loops: deliver.layer.pipe(Layer.provide([Outbox.layer, Transport.layer]))
}
