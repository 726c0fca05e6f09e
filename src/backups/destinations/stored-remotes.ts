/** Destinations, for those who copy backups there and read them back. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Destinations } from "./Destinations.ts"
import { Remotes } from "./Remotes.ts"

export const remotes = Layer.effect(
  Remotes,
  Effect.map(Destinations, ({ current, at }) => ({ current, at }))
)
