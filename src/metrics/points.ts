/** Points of measurements in memory: samples, sums over longer times, and what a display asks of these. */
import type { Table } from "./codec.ts"

/** What is known of a measurement over some time. */
export interface Sums {
  readonly count: number
  readonly sum: number
  readonly min: number
  readonly max: number
  readonly last: number
}

/** Of one resource: by time in milliseconds, by measurement. */
export type Points = Map<number, Map<string, Sums>>

export const ofSample = (value: number): Sums => ({
  count: 1,
  sum: value,
  min: value,
  max: value,
  last: value
})

/** `b` is the later one. */
const both = (a: Sums, b: Sums): Sums => ({
  count: a.count + b.count,
  sum: a.sum + b.sum,
  min: Math.min(a.min, b.min),
  max: Math.max(a.max, b.max),
  last: b.last
})

/** Adds to the point at a time; what comes later for the same one counts as later. */
export const add = (points: Points, time: number, name: string, sums: Sums): void => {
  const point = points.get(time) ?? new Map<string, Sums>()
  const before = point.get(name)
  point.set(name, before === undefined ? sums : both(before, sums))
  points.set(time, point)
}

/** Points of a longer step: each is at the beginning of its step, which are multiples of it since 1970. */
export const coarser = (points: Points, stepMs: number): Points => {
  const result: Points = new Map()
  for (const time of [...points.keys()].sort((a, b) => a - b)) {
    for (const [name, sums] of points.get(time) ?? [])
      add(result, Math.floor(time / stepMs) * stepMs, name, sums)
  }
  return result
}

const parts = ["count", "sum", "min", "max", "last"] as const
const namesIn = (points: Points) =>
  [...new Set([...points.values()].flatMap((point) => [...point.keys()]))].sort()
const timesIn = (points: Points) => [...points.keys()].sort((a, b) => a - b)

/** Of samples the values alone are kept, of sums all of their parts. */
export const toTable = (points: Points, samples: boolean): Table => {
  const times = timesIn(points)
  const columnOf = (name: string, part: keyof Sums) =>
    times.map((time) => points.get(time)?.get(name)?.[part])
  return {
    times,
    columns: new Map(
      namesIn(points).flatMap(
        (name): ReadonlyArray<[string, ReadonlyArray<number | undefined>]> =>
          samples
            ? [[name, columnOf(name, "last")]]
            : parts.map((part) => [`${name} ${part}`, columnOf(name, part)])
      )
    )
  }
}

/** Both kinds of tables. One that cannot be read is one that is not there. */
export const addTable = (points: Points, table: Table | undefined): void => {
  if (table === undefined) return
  const { times, columns } = table
  for (const [key, column] of columns) {
    const [name = "", part] = key.split(" ")
    if (part !== undefined && part !== "count") continue
    const of = (which: keyof Sums) => columns.get(`${name} ${which}`)
    const [sum, min, max, last] = [of("sum"), of("min"), of("max"), of("last")]
    for (const [row, time] of times.entries()) {
      const value = column[row]
      if (value === undefined) continue
      if (part === undefined) add(points, time, name, ofSample(value))
      else {
        add(points, time, name, {
          count: value,
          sum: sum?.[row] ?? 0,
          min: min?.[row] ?? 0,
          max: max?.[row] ?? 0,
          last: last?.[row] ?? 0
        })
      }
    }
  }
}
