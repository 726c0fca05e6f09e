/** Alerts in words, for mails and terminals. */
import { isMeasurement, measurements, type Unit } from "#schemas/signal.ts"
import type { AlertResource } from "./words.ts"

const operators: Readonly<Record<string, string>> = {
  gt: "above",
  gte: "at or above",
  lt: "below",
  lte: "at or below",
  eq: "exactly"
}
const units: Readonly<Record<Unit, string>> = {
  boolean: "",
  bytes: " bytes",
  bytes_per_second: " bytes/s",
  count: "",
  milliseconds: " ms",
  per_minute: "/min",
  per_second: "/s",
  percent: " %",
  seconds: " s"
}

/** `93.5 %`; of a boolean `yes` or `no`. */
export const valueText = (signal: string, value: number): string => {
  const unit = isMeasurement(signal) ? measurements[signal].unit : "count"
  if (unit === "boolean") return value === 0 ? "no" : "yes"
  return `${Math.round(value * 100) / 100}${units[unit]}`
}

/** `above 90 %` */
export const boundText = (signal: string, operator: string, threshold: number): string =>
  `${operators[operator] ?? operator} ${valueText(signal, threshold)}`

export const resourceText = ({ kind, name, environment }: AlertResource): string =>
  kind === "Environment" || environment === null ? `${kind} ${name}` : `${kind} ${name} of ${environment}`

/** `cpu.pressure of Database main of production is 97 %; the alert is about values at or above 90 %` */
export const conditionText = ({
  signal,
  operator,
  threshold,
  value,
  resource
}: {
  readonly signal: string
  readonly operator: string
  readonly threshold: number
  readonly value: number | null
  readonly resource: AlertResource | null
}): string =>
  `${signal}${resource === null ? "" : ` of ${resourceText(resource)}`} ${value === null ? "was not measured" : `is ${valueText(signal, value)}`}; the alert is about values ${boundText(signal, operator, threshold)}`
