/** How builds end that come to nothing. */
import * as Schema from "effect/Schema"

export class BuildFailed extends Schema.TaggedError<BuildFailed>()("BuildFailed", {
  errorCode: Schema.Literals(["build_failed", "build_timed_out", "build_unavailable"]),
  message: Schema.String
}) {}

/** Somebody else goes on with the build, or nobody wants it any more. */
export class BuildLost extends Schema.TaggedError<BuildLost>()("BuildLost", {}) {}
