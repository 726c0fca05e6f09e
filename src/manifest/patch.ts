/** What users may see of specifications and of their changes: no internal fields, sealed values masked. */
import * as Result from "effect/Result"
import jsonPatch from "fast-json-patch"
import { completeSpec } from "#schemas/complete-spec.ts"
import type { Json, Kind } from "#schemas/kind.ts"
import { asObject, isObject, type JsonObject, masked } from "#schemas/manifest-mapping.ts"

export { asObject, isObject }

/** RFC 6902. */
export interface PatchOperation {
  readonly op: "add" | "remove" | "replace" | "test"
  readonly path: string
  readonly value?: Json
}

/** A stored specification with every default. One that this release cannot read is as it was stored. */
export const storedSpec = (kind: Kind, stored: unknown): JsonObject =>
  asObject(Result.getOrElse(completeSpec(kind, stored), () => stored))

/** Fields in the order in which the kind lists them, so that what is shown is the same every time. */
const shownFields = (kind: Kind, spec: JsonObject): JsonObject => {
  const shown: Record<string, Json> = {}
  for (const field of kind.fields) {
    const value = spec[field]
    if (value !== undefined && !kind.internal.includes(field)) shown[field] = value
  }
  return shown
}

const mask = (values: Json): JsonObject => {
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

/**
 * Applied to the public form of `before` it gives the public form of `after`. Empty only if nothing differs. What goes
 * or is replaced is preceded by a `test` with its value, so that a change shows what it is a change from.
 */
export const publicPatch = (
  kind: Kind,
  before: JsonObject,
  after: JsonObject
): ReadonlyArray<PatchOperation> => {
  const root = kind.sealed === undefined ? undefined : `/${kind.sealed.field}`
  return jsonPatch
    .compare(shownFields(kind, before), shownFields(kind, after), true)
    .map((operation): PatchOperation => {
      const { path } = operation
      if (operation.op === "remove") return { op: "remove", path }
      if (operation.op !== "add" && operation.op !== "replace" && operation.op !== "test") {
        throw new Error(`An operation that comparing does not make: ${operation.op}`)
      }
      const value: Json = operation.value
      const { op } = operation
      if (path === root) return { op, path, value: mask(value) }
      return { op, path, value: root !== undefined && path.startsWith(`${root}/`) ? masked : value }
    })
}
