/** What can go wrong with HAProxy on this machine. Messages are for people and hold no secret. */
import * as Schema from "effect/Schema"

export class HaproxyError extends Schema.TaggedError<HaproxyError>()("HaproxyError", {
  reason: Schema.Literals([
    /** It is not installed. */
    "Missing",
    /** Its configuration is refused, or draws warnings. */
    "ConfigRefused",
    /** It ended as soon as it was started, or does not answer. */
    "StartFailed",
    /** Nothing listens on its control socket. */
    "Closed",
    /** A connection was taken and ended without an answer: it is ending, and whether it did what was asked is not known. */
    "Cut",
    /** Its control socket gave no answer in time, or too long a one. */
    "Silent",
    /** It did not do what it was told. */
    "Refused",
    "Failed"
  ]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** An error of the host as one of these. */
export const failed = (cause: { readonly message: string }): HaproxyError =>
  new HaproxyError({ reason: "Failed", message: cause.message, cause })
