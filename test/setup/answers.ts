/** What tests of operations do with answers: compare them with what is documented, and wait for one. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Answer } from "./control-plane.ts"
import { eventually } from "./wait.ts"

/** Whether `body` is what the schema describes, and nothing more. */
export const fits = <S extends Schema.ConstraintDecoder<unknown>>(schema: S, body: unknown) =>
  Effect.orDie(Schema.decodeUnknownEffect(schema)(body, { errors: "all", onExcessProperty: "error" }))

/** Asks again until the answer is the one that is waited for. */
export const untilAnswer = (look: Effect.Effect<Answer>, holds: (answer: Answer) => boolean) =>
  eventually("that answer", look, holds)
