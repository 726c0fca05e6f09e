/** A standby is no resource: what is told of it stands with its database's measurements, under names with its number. */
import { isMeasurement } from "#schemas/signal.ts"
import type { Values } from "../MetricSamples.ts"

export const standbyValues = (number: number, values: Values): Values =>
  Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => {
      const ofStandby = `standby${number}.${name}`
      return isMeasurement(ofStandby) ? [[ofStandby, value] as const] : []
    })
  )
