/** Measured values as people read them. */
import type { Unit } from "#schemas/signal.ts"
import { bytes, count } from "../parts/amounts.ts"
import { duration } from "../parts/time.tsx"

export const inUnit: Readonly<Record<Unit, (value: number) => string>> = {
  boolean: (value) => (value === 0 ? "no" : "yes"),
  bytes,
  bytes_per_second: (value) => `${bytes(value)}/s`,
  count,
  milliseconds: (value) => `${count(value)} ms`,
  per_minute: (value) => `${count(value)}/min`,
  per_second: (value) => `${count(value)}/s`,
  percent: (value) => `${count(value)} %`,
  seconds: (value) => duration(value * 1_000)
}
