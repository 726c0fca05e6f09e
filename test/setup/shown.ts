/** Connection strings, which are shown to whoever makes a server or replaces its password, and to nobody else. */
import * as Effect from "effect/Effect"
import { type Answer, Plane } from "./control-plane.ts"
import { eventually } from "./wait.ts"

/**
 * The one of a server that was just asked for. An answer waits for the server for some time only; what takes longer is
 * shown by replacing the password, once the server is there.
 */
export const connectionString = Effect.fn(function* (made: Answer, rotation: string) {
  const { call } = yield* Plane
  const shown =
    made.body.connectionString !== null
      ? made
      : yield* eventually("the password is replaced", call("POST", rotation), ({ status }) => status === 200)
  return String(shown.body.connectionString)
})
