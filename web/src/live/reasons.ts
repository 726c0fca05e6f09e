/** What reasons of conditions mean, as they are declared. */
import { engineReasons, type Reason } from "#schemas/condition.ts"
import { findKind } from "#schemas/index.ts"

export const meaningOf = (kind: string, reason: string): string | undefined => {
  const declared: Readonly<Record<string, Reason>> = { ...engineReasons, ...findKind(kind)?.reasons }
  return Object.hasOwn(declared, reason) ? declared[reason]?.means : undefined
}
