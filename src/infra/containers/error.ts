/** What can go wrong with a container engine. Messages are for people and hold no secret. */
import * as Schema from "effect/Schema"
import { storableText } from "#src/storable.ts"

export class ContainerError extends Schema.TaggedError<ContainerError>()("ContainerError", {
  reason: Schema.Literals([
    /** There is no engine on this host. */
    "HostDependencyMissing",
    /** It does not answer, or not in time. */
    "Unreachable",
    /** It has no such thing. */
    "NotFound",
    /** It has it already, or the thing is in another state. */
    "Conflict",
    "Failed"
  ]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

const said = (cause: unknown): string => {
  if (typeof cause !== "object" || cause === null) return storableText(String(cause), 500)
  const inner = "json" in cause && typeof cause.json === "object" && cause.json !== null ? cause.json : cause
  const text = "message" in inner && typeof inner.message === "string" ? inner.message : String(cause)
  return storableText(text.replaceAll(/\s+/g, " "), 500)
}

/** A failed call of the engine's API: by its HTTP status if it answered at all. */
export const containerError =
  (what: string) =>
  (cause: unknown): ContainerError => {
    if (cause instanceof ContainerError) return cause
    const status =
      typeof cause === "object" && cause !== null && "statusCode" in cause ? cause.statusCode : undefined
    const reason =
      status === 404
        ? "NotFound"
        : status === 409 || status === 304
          ? "Conflict"
          : status === undefined
            ? "Unreachable"
            : "Failed"
    return new ContainerError({ reason, message: `${what}: ${said(cause)}`, cause })
  }
