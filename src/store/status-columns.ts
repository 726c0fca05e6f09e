/**
 * Reading what the engine of another version may have written. While a release is rolled out, an older process meets
 * phases, conditions and kinds that it does not know; one such row must not take lists, the feed and plans with it.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Condition, Phase } from "#schemas/condition.ts"
import { Difference } from "#schemas/difference.ts"

export const isPhase = Schema.is(Phase)

/** Those of a list that this version understands. */
const understood = <A>(schema: Schema.Codec<A, unknown>) => {
  const all = Schema.decodeUnknownOption(Schema.Array(schema))
  const one = Schema.decodeUnknownOption(schema)
  return (value: unknown): ReadonlyArray<A> =>
    Option.getOrElse(all(value), () =>
      Array.isArray(value) ? value.flatMap((element) => Option.toArray(one(element))) : []
    )
}
export const conditionsIn = understood(Condition)
export const differencesIn = understood(Difference)

/** In place of a phase that this version does not know: what the conditions say. */
export const phaseIn = (
  phase: string,
  deleting: boolean,
  conditions: () => ReadonlyArray<Condition>
): Phase => {
  if (isPhase(phase)) return phase
  if (deleting) return "deleting"
  return conditions().some(({ type, status }) => type === "Ready" && status === "true") ? "ready" : "pending"
}
