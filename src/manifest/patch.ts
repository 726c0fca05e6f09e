/** What users may see of changes of specifications: no internal fields, sealed values masked. */
import jsonPatch from "fast-json-patch"
import type { Json, Kind } from "#schemas/kind.ts"
import { asObject, type JsonObject, masked } from "#schemas/manifest-mapping.ts"
import { mask, shownFields } from "#schemas/public-spec.ts"

export { asObject }

/** RFC 6902. */
export interface PatchOperation {
  readonly op: "add" | "remove" | "replace" | "test"
  readonly path: string
  readonly value?: Json
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
