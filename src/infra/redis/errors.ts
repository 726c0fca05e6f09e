/** What can go wrong with a managed cache server. Messages are for people and hold no secret. */
import * as Schema from "effect/Schema"
import type { HostError } from "../host/Host.ts"
import type { RedisControlError } from "./RedisControl.ts"

export class RedisServerError extends Schema.TaggedError<RedisServerError>()("RedisServerError", {
  reason: Schema.Literals([
    /** No server program is installed. */
    "HostDependencyMissing",
    /** A later reconcile works on the server, or removed it. */
    "Fenced",
    /** The process is there and gives no answer that can be used. */
    "NotAnswering",
    /** The script that keeps the server busy has written, so that only the end of the server ends it. */
    "Unkillable",
    "StartFailed",
    "Failed"
  ]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export const failed = (error: HostError | RedisControlError): RedisServerError =>
  new RedisServerError({
    reason: error._tag === "RedisControlError" ? "NotAnswering" : "Failed",
    message: error.message,
    cause: error
  })
