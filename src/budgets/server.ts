import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as tidy from "./tidy.ts"

export const server: Server = {
  handlers: Layer.empty,
  loops: tidy.layer
}
