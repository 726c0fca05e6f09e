/** Times that requests may name. */
import type { Fault } from "./definition/problem.ts"

const earliestMs = Date.parse("0001-01-01T00:00:00Z")
const afterLastMs = Date.parse("+010000-01-01T00:00:00Z")

/** Faults of those that are in no year from 0001 to 9999: neither RFC 3339 nor the store has words for others. */
export const momentFaults = (times: Readonly<Record<string, number>>): ReadonlyArray<Fault> =>
  Object.entries(times).flatMap(([pointer, time]) =>
    time >= earliestMs && time < afterLastMs
      ? []
      : [{ pointer, message: "must be in one of the years 0001 to 9999" }]
  )
