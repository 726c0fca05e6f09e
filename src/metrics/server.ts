import * as Layer from "effect/Layer"
import type { Server } from "#src/feature.ts"

export const server: Server = { handlers: Layer.empty }
