/**
 * Facts: what stays true of a real thing whether or not it can be seen, such as that it once held data. They are
 * stored apart from the status, which the next look may replace, and no look takes one away.
 *
 * A run that finds new facts stores them before it takes a step. So what a step builds on is known after a crash at any
 * moment: a server, for example, is not started on new data before it is stored that there is data.
 */
import { isDeepStrictEqual } from "node:util"
import * as Schema from "effect/Schema"
import type { Json } from "#schemas/kind.ts"

export type Facts = Readonly<Record<string, Json>>

const decode = Schema.decodeUnknownSync(Schema.Record(Schema.String, Schema.Json))

/** The facts of an observation that are not stored yet, or differ from what is; undefined: there are none. */
export const newFacts = (
  stored: Facts,
  observation: { readonly _tag: string; readonly facts?: unknown }
): Facts | undefined => {
  if (observation.facts === undefined) return undefined
  const entries = Object.entries(decode(observation.facts)).filter(
    ([key, value]) => !isDeepStrictEqual(stored[key], value)
  )
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}
