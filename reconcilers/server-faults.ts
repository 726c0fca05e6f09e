/** How the faults of a server are told to the engine. */
import type { Difference } from "#schemas/difference.ts"

/**
 * A server that is not held to its limits works: making that right is maintenance, and a machine that refuses it takes nothing
 * from users.
 */
export const differencesAndMaintenance = (
  faults: ReadonlyArray<Difference & { readonly repair: string }>
): { readonly differences: ReadonlyArray<Difference>; readonly maintenance: ReadonlyArray<Difference> } => {
  const told = (some: typeof faults) => some.map(({ field, message }): Difference => ({ field, message }))
  return {
    differences: told(faults.filter(({ repair }) => repair !== "limits")),
    maintenance: told(faults.filter(({ repair }) => repair === "limits"))
  }
}
