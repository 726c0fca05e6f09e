/**
 * In which region a resource is placed: the one that its specification names, and else the first that is offered. Everything
 * that makes a resource goes through here, so that no kind has to know which regions there are. And whose work it is then.
 */
import type { Kind } from "./kind.ts"

/** Region ids that new resources may be placed in. The first is meant where none is named. */
export type RegionIds = readonly [string, ...ReadonlyArray<string>]

/**
 * The specification with a region, if its kind needs one and it names none: that of `before`, which is there already, since
 * another one would mean another resource.
 */
export const placed = (
  kind: Pick<Kind, "placement">,
  spec: unknown,
  regions: RegionIds,
  before?: unknown
): unknown =>
  kind.placement === "host" && typeof spec === "object" && regionOf(spec) === undefined
    ? { ...spec, region: regionOf(before) ?? regions[0] }
    : spec

/**
 * What is wrong with the region that the specification names. A region that `before` named may stay although it is not
 * offered any more, so that everything else of the resource can change still.
 */
export const regionFault = (
  kind: Pick<Kind, "regional">,
  spec: unknown,
  regions: RegionIds,
  before?: unknown
): { readonly field: "region"; readonly message: string } | undefined => {
  const region = kind.regional ? regionOf(spec) : undefined
  return region === undefined || region === regionOf(before) || regions.some((id) => id === region)
    ? undefined
    : { field: "region", message: `must be one of: ${regions.join(", ")}` }
}

/** The pool of work that any process may take. */
export const anyPool = "any"

/** The pool that work on a resource belongs to: that of a region, or the one that is everybody's. */
export const poolOf = (kind: Pick<Kind, "placement"> | undefined, spec: unknown): string => {
  const region = kind?.placement === "host" ? regionOf(spec) : undefined
  return typeof region === "string" ? region : anyPool
}

const regionOf = (spec: unknown): unknown =>
  typeof spec === "object" && spec !== null && "region" in spec ? spec.region : undefined
