/** The words that the key of a history is bound to. */
export const lineagePlace = (orgId: string, lineage: string): ReadonlyArray<string> => [
  "backup",
  orgId,
  lineage
]
