/** What goes wrong with a managed Postgres server, in words for people. */
import * as Schema from "effect/Schema"
import type { HostError } from "../host/Host.ts"
import type { PostgresControlError } from "./PostgresControl.ts"

export class PostgresServerError extends Schema.TaggedError<PostgresServerError>()("PostgresServerError", {
  reason: Schema.Literals([
    /** A later reconcile works on the server, or removed it. */
    "Fenced",
    "StartFailed",
    "Failed"
  ]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export const failed = (error: HostError | PostgresControlError): PostgresServerError =>
  new PostgresServerError({ reason: "Failed", message: error.message, cause: error })
