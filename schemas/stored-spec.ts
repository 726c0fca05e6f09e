/** Specifications as the store gives them, in the shape that this release knows. */
import { findKind } from "./index.ts"
import type { Json } from "./kind.ts"

/** One that cannot be upgraded stays as it is: it is told of as not valid, and can be deleted. */
export const fromStored = (kindName: string, stored: Json): Json => {
  const upgrade = findKind(kindName)?.upgrade
  if (upgrade === undefined) return stored
  try {
    return upgrade(stored)
  } catch {
    return stored
  }
}
