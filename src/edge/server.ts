import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"
import * as certificates from "./certificates/loop.ts"

export const server: Server = {
  handlers: Layer.empty,
  loops: certificates.layer
}
