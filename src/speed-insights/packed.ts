/**
 * Sketches as they are stored. A slot is an hour of the day and a metric (`24 hours x 5 metrics`); in sums of a whole day the
 * hour is 0. For each slot that has values, in order: the slot, the number of its buckets, and for each of these the
 * difference to the one before and the count. All numbers are LEB128 (DWARF 5, section 7.6).
 */
import { metrics } from "./batch.ts"

/** Counts by bucket, by slot: what comes in a few minutes touches few of the buckets. */
export type Slots = Map<number, Map<number, number>>

export const slotOf = (hour: number, metric: number): number => hour * metrics.length + metric
export const hourOf = (slot: number): number => Math.floor(slot / metrics.length)
export const metricOf = (slot: number): number => slot % metrics.length

export const addTo = (slots: Slots, slot: number, bucket: number, count: number): void => {
  const counts = slots.get(slot) ?? new Map<number, number>()
  slots.set(slot, counts.set(bucket, (counts.get(bucket) ?? 0) + count))
}

export const pack = (slots: Slots): Uint8Array => {
  const bytes: Array<number> = []
  const put = (number: number) => {
    let rest = number
    while (rest > 127) {
      bytes.push((rest % 128) + 128)
      rest = Math.floor(rest / 128)
    }
    bytes.push(rest)
  }
  for (const [slot, counts] of [...slots].sort(([a], [b]) => a - b)) {
    put(slot)
    put(counts.size)
    let last = 0
    for (const [bucket, count] of [...counts].sort(([a], [b]) => a - b)) {
      put(bucket - last)
      put(count)
      last = bucket
    }
  }
  return Uint8Array.from(bytes)
}

/** Calls `each` for all that was packed. */
export const unpack = (
  bytes: Uint8Array,
  each: (slot: number, bucket: number, count: number) => void
): void => {
  let at = 0
  const take = (): number => {
    let number = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++] ?? 0
      number += (byte % 128) * factor
      if (byte < 128) return number
    }
  }
  while (at < bytes.length) {
    const slot = take()
    let bucket = 0
    for (let left = take(); left > 0; left--) {
      bucket += take()
      each(slot, bucket, take())
    }
  }
}

/** The same counts without their hours. */
export const wholeDay = (hours: Slots): Slots => {
  const total: Slots = new Map()
  for (const [slot, counts] of hours)
    for (const [bucket, count] of counts) addTo(total, metricOf(slot), bucket, count)
  return total
}
