/** The one failure that every part meets which works with the state store; it stands below the store and the engine. */
import * as Schema from "effect/Schema"

/** The state store did not answer, or answered something it never should. The operation may be repeated. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}
