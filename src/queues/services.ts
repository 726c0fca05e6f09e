/** What other features use of queues. */
import * as Layer from "effect/Layer"
import * as limits from "./limits.ts"
import { Messages } from "./Messages.ts"

/** Messages within the limits that the settings of the process say. */
export const messages = Messages.layer.pipe(Layer.provide(limits.layer))
