/**
 * From what a manifest's entry says to the specification that is stored: masks filled in, values fingerprinted,
 * defaults completed, internal fields kept. Everything that keeps an entry from becoming a specification is named.
 */
import * as Result from "effect/Result"
import * as SchemaIssue from "effect/SchemaIssue"
import { completeSpec } from "#schemas/complete-spec.ts"
import type { Json, Kind } from "#schemas/kind.ts"
import { type JsonObject, type ManifestEntry, masked } from "#schemas/manifest-mapping.ts"
import { placed, type RegionIds, regionFault } from "#schemas/placement.ts"
import type { Path } from "#src/api/source-location.ts"
import { asObject } from "./patch.ts"

export interface Desired {
  readonly spec: JsonObject
  /** Clear values to seal, by secret field: only those that are not sealed already. */
  readonly secrets: Readonly<Record<string, string>>
  /** Keys that the entry does not name and that stay, because nothing is deleted without prune. */
  readonly kept: ReadonlyArray<string>
}

/** `path` starts at the entry. */
export interface Obstacle {
  readonly path: Path
  readonly code: "masked_value_without_current" | "not_available" | "invalid_spec"
  readonly message: string
}

export interface DesiredOptions {
  readonly prune: boolean
  readonly fingerprint: (value: string) => string
  readonly regions: RegionIds
}

export const desiredOf = (
  kind: Kind,
  entry: ManifestEntry,
  current: JsonObject | undefined,
  options: DesiredOptions
): Result.Result<Desired, ReadonlyArray<Obstacle>> => {
  const obstacles: Array<Obstacle> = []
  const spec: Record<string, Json> = {}
  for (const [field, value] of Object.entries(entry.spec)) {
    if (kind.fields.includes(field)) spec[field] = value
    // Nothing of something is what there is of it now.
    else if (value !== 0) {
      const message = `"${field}" is not available in this release; take it out to plan the rest`
      obstacles.push({ path: [field], code: "not_available", message })
    }
  }
  for (const field of kind.internal) {
    const value = current?.[field]
    if (value !== undefined) spec[field] = value
  }
  const secrets: Record<string, string> = {}
  const kept: Array<string> = []
  if (kind.sealed !== undefined) {
    const { field, secret, marks } = kind.sealed
    const known = new Map(Object.entries(asObject(current?.[field])))
    const values = new Map(Object.entries(asObject(spec[field])))
    const fingerprints: Record<string, Json> = {}
    for (const [key, value] of values) {
      const there = known.get(key)
      if (value !== masked) {
        const clear = String(value)
        const fingerprint = options.fingerprint(clear)
        fingerprints[key] = fingerprint
        if (fingerprint !== there) secrets[secret(key)] = clear
      } else if (there !== undefined) fingerprints[key] = there
      else {
        const message = `${masked} means "leave what is there", but nothing is there; give the value`
        obstacles.push({ path: [key], code: "masked_value_without_current", message })
      }
    }
    if (!options.prune) {
      for (const [key, value] of known) {
        if (values.has(key)) continue
        fingerprints[key] = value
        kept.push(key)
      }
    }
    spec[field] = fingerprints
    const marked = marks === undefined ? undefined : current?.[marks]
    if (marks !== undefined && spec[marks] === undefined && Array.isArray(marked))
      spec[marks] = marked.filter((key) => Object.hasOwn(fingerprints, String(key)))
  }
  const regional = regionFault(kind, spec, options.regions, current)
  if (regional !== undefined)
    obstacles.push({ path: [regional.field], code: "invalid_spec", message: regional.message })
  const decoded = completeSpec(kind, placed(kind, spec, options.regions, current))
  if (Result.isFailure(decoded)) {
    for (const { path = [], message } of format(decoded.failure.issue).issues) {
      const keys = path.map((part) => String(typeof part === "object" ? part.key : part))
      obstacles.push({
        path: keys[0] === kind.sealed?.field ? keys.slice(1) : keys,
        code: "invalid_spec",
        message
      })
    }
  }
  return obstacles.length > 0 || Result.isFailure(decoded)
    ? Result.fail(obstacles)
    : Result.succeed({ spec: asObject(decoded.success), secrets, kept: kept.sort() })
}

const format = SchemaIssue.makeFormatterStandardSchemaV1()
