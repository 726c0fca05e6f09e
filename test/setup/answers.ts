/** What tests of operations do with answers: compare them with what is documented, and wait for one. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Answer } from "./control-plane.ts"

/** Whether `body` is what the schema describes, and nothing more. */
export const fits = <S extends Schema.ConstraintDecoder<unknown>>(schema: S, body: unknown) =>
  Effect.orDie(Schema.decodeUnknownEffect(schema)(body, { errors: "all", onExcessProperty: "error" }))

/** Asks again until the answer is the one that is waited for; what takes longer ends with the last one. */
export const untilWithin =
  (seconds: number) => (look: Effect.Effect<Answer>, holds: (answer: Answer) => boolean) => {
    let last: Answer | undefined
    return look.pipe(
      Effect.tap((answer) => {
        last = answer
        return Effect.sleep("50 millis")
      }),
      Effect.repeat({ until: holds }),
      Effect.timeoutOrElse({
        duration: `${seconds} seconds`,
        orElse: () => Effect.die(new Error(`it came to nothing: ${last?.status} ${last?.text}`))
      })
    )
  }
