/** What goes wrong on the machine itself. */
import * as Schema from "effect/Schema"
import { codeOf } from "../error-code.ts"

export class HostError extends Schema.TaggedError<HostError>()("HostError", {
  /** What was attempted, on what, and what to do. */
  message: Schema.String,
  /** Error code of the system call, such as `ENOENT`. */
  code: Schema.optionalKey(Schema.String),
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** From whatever a call of the system threw. */
export const hostError = (message: string) => (cause: unknown) => {
  const code = codeOf(cause)
  return new HostError({
    message: `${message}: ${cause instanceof Error ? cause.message : String(cause)}`,
    cause,
    ...(code === undefined ? {} : { code })
  })
}
