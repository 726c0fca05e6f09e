/** What users may see of a specification: no internal fields, sealed values masked. */
import * as Result from "effect/Result"
import { completeSpec } from "./complete-spec.ts"
import type { Json, Kind } from "./kind.ts"
import { asObject, type JsonObject, masked } from "./manifest-mapping.ts"

/** A stored specification with every default. One that this release cannot read is as it was stored. */
export const storedSpec = (kind: Kind, stored: unknown): JsonObject =>
  asObject(Result.getOrElse(completeSpec(kind, stored), () => stored))

/** Fields in the order in which the kind lists them, so that what is shown is the same every time. */
export const shownFields = (kind: Kind, spec: JsonObject): JsonObject => {
  const shown: Record<string, Json> = {}
  for (const field of kind.fields) {
    const value = spec[field]
    if (value !== undefined && !kind.internal.includes(field)) shown[field] = value
  }
  return shown
}

export const mask = (values: Json): JsonObject => {
  const hidden: Record<string, Json> = {}
  for (const key of Object.keys(asObject(values)).sort()) hidden[key] = masked
  return hidden
}

export const publicSpec = (kind: Kind, stored: unknown): JsonObject => {
  const shown = shownFields(kind, storedSpec(kind, stored))
  const sealed = kind.sealed === undefined ? undefined : shown[kind.sealed.field]
  return kind.sealed === undefined || sealed === undefined
    ? shown
    : { ...shown, [kind.sealed.field]: mask(sealed) }
}
