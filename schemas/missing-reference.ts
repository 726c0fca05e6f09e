/** What users are told of a field that names what is not there. */
import { kindInWords } from "./kind.ts"
import type { Named, Reference } from "./reference.ts"

/** `unknown_` and the last word of the named kind. */
export const missingCode = ({ kind }: Reference): string =>
  `unknown_${(kind.match(/[A-Z][a-z0-9]*$/)?.[0] ?? kind).toLowerCase()}`

/** Follows the place of the field. `environment`: where a name was looked up. */
export const missingMessage = (
  { reference, target }: Pick<Named, "reference" | "target">,
  environment: string | null
): string => {
  const what = `names the ${kindInWords(reference.kind)} "${target}"`
  return reference.by === "name" && environment !== null
    ? `${what}, which "${environment}" does not have`
    : `${what}, which does not exist`
}

/** Follows the place of the field. */
export const circleMessage = ({ kind }: Pick<Reference, "kind">): string =>
  `leads back to this ${kindInWords(kind)}: references must not form a circle`
