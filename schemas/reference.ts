/**
 * Which other resources a specification names. A kind states this once, as data, and the rest follows for every kind: what
 * is missing is refused where it is named, plans create and delete in the right order, what is named is not deleted, and
 * circles are refused.
 */
export interface Reference {
  /**
   * Where the specification names the resource: a JSON Pointer, in which `*` stands for every element of a list. Where
   * nothing or null stands, nothing is named.
   */
  readonly path: string
  /** Kind of the resource that is named. */
  readonly kind: string
  /** By uid, or by the name that it has in the same project and environment, as far as its kind lives in one. */
  readonly by: "name" | "uid"
  /** JSON Pointer to the environment in which the name is looked up. Absent: that of the resource itself. */
  readonly environment?: string
  /**
   * What is named must be there when it is named, and is not deleted as long as it is. If not required, it may come later
   * and go earlier.
   */
  readonly required: boolean
  /** Following it from resource to resource must come to an end. */
  readonly acyclic?: boolean
  /** A manifest that has the section of the named kind must list there what is named. */
  readonly listed?: boolean
}

/** One resource that a specification names. */
export interface Named {
  readonly reference: Reference
  /** Where it is named. */
  readonly path: ReadonlyArray<string | number>
  /** Its uid or its name, as `reference.by` says. */
  readonly target: string
  /** Undefined: the environment of the resource that names it. */
  readonly environment: string | undefined
}

/** What a specification names, whether or not it is complete or valid. */
export const namedIn = (references: ReadonlyArray<Reference>, spec: unknown): ReadonlyArray<Named> =>
  references.flatMap((reference) =>
    valuesAt(spec, partsOf(reference.path), []).flatMap(({ path, value }): ReadonlyArray<Named> => {
      if (typeof value !== "string") return []
      if (reference.environment === undefined)
        return [{ reference, path, target: value, environment: undefined }]
      const [place] = valuesAt(spec, partsOf(reference.environment), [])
      return typeof place?.value === "string"
        ? [{ reference, path, target: value, environment: place.value }]
        : []
    })
  )

const partsOf = (pointer: string): ReadonlyArray<string> => pointer.split("/").slice(1)

interface Found {
  readonly path: ReadonlyArray<string | number>
  readonly value: unknown
}

const valuesAt = (
  value: unknown,
  [part, ...rest]: ReadonlyArray<string>,
  path: ReadonlyArray<string | number>
): ReadonlyArray<Found> => {
  if (part === undefined) return [{ path, value }]
  if (typeof value !== "object" || value === null) return []
  if (part === "*")
    return Array.isArray(value)
      ? value.flatMap((element, index) => valuesAt(element, rest, [...path, index]))
      : []
  const entry = Object.entries(value).find(([key]) => key === part)
  return entry === undefined ? [] : valuesAt(entry[1], rest, [...path, part])
}
