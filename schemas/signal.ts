/**
 * What is measured of resources: names, units and meanings, for samplers, queries, alerts and displays.
 *
 * A **signal** is a measurement that an alert's condition can name; the contract lists 31 of them. The other
 * measurements are only shown. A measurement that cannot be taken is absent, never 0.
 */
import * as Schema from "effect/Schema"

/** `boolean` is 1 or 0. Units with `per` are rates: averages over the time between two looks, unless the meaning says another. */
export const Unit = Schema.Literals([
  "boolean",
  "bytes",
  "bytes_per_second",
  "count",
  "milliseconds",
  "per_minute",
  "per_second",
  "percent",
  "seconds"
]).annotate({ identifier: "Unit" })
export type Unit = typeof Unit.Type

export interface MeasurementDefinition {
  readonly unit: Unit
  /** For users: one sentence without a full stop. */
  readonly meaning: string
  /** The kinds of resources that have it. */
  readonly kinds: ReadonlyArray<MeasuredKind>
  /** Whether an alert's condition can name it. */
  readonly signal: boolean
  /** The threshold of a condition that states none. Absent: the condition has to state one. */
  readonly usualThreshold?: number
  /** Why nothing measures it: a condition that names it is never met. */
  readonly unavailable?: string
}

export type MeasuredKind =
  | "Cache"
  | "Cron"
  | "Database"
  | "DatabaseBranch"
  | "Environment"
  | "Execution"
  | "Queue"

const postgres = ["Database", "DatabaseBranch"] as const
const servers = [...postgres, "Cache"] as const
const running = [...servers, "Execution"] as const

const signal = (
  unit: Unit,
  kinds: ReadonlyArray<MeasuredKind>,
  meaning: string,
  usualThreshold?: number
): MeasurementDefinition & { readonly signal: true } => ({
  unit,
  kinds,
  meaning,
  signal: true,
  ...(usualThreshold === undefined ? {} : { usualThreshold })
})

/** Postgres counts statements and adds up their times, and no share of them can be told from a sum. */
const latency = (meaning: string) => ({
  ...signal("milliseconds", postgres, meaning),
  unavailable: "Postgres keeps sums of the times that statements take, and no distribution of them"
})

const shown = (
  unit: Unit,
  kinds: ReadonlyArray<MeasuredKind>,
  meaning: string
): MeasurementDefinition & { readonly signal: false } => ({ unit, kinds, meaning, signal: false })

const signalDefinitions = {
  "database.unavailable": signal("boolean", postgres, "Whether it takes no connections though it should", 1),
  "backup.archive_failed": signal(
    "boolean",
    ["Database"],
    "Whether the last try to store its write-ahead log with its backups failed",
    1
  ),
  "storage.capacity": signal("percent", servers, "How full the disk is that its data are on", 85),
  "cpu.pressure": signal("percent", running, "Processor time in use, of what it may use", 90),
  "memory.pressure": signal("percent", running, "Memory in use, of what it may use", 90),
  "database.pool_saturation": signal("percent", postgres, "Connections in use, of those it takes", 90),
  "queue.backlog": signal(
    "count",
    ["Queue"],
    "Messages that wait or are being delivered; what was given up is not counted",
    1000
  ),

  "cpu.percent": signal("percent", running, "Processor time in use; 100 is one whole processor"),
  "memory.used_bytes": signal("bytes", running, "Memory in use, without the page cache"),
  "memory.limit_bytes": signal("bytes", running, "Memory that it may use"),
  "disk.used_bytes": signal("bytes", servers, "Disk in use by its files"),
  "disk.limit_bytes": signal("bytes", servers, "Size of the disk that its data are on"),
  "disk.read_iops": signal("per_second", running, "Reads from the disk"),
  "disk.write_iops": signal("per_second", running, "Writes to the disk"),
  "network.receive_bytes": signal(
    "bytes_per_second",
    ["Cache", "Execution"],
    "Bytes received over the network"
  ),
  "network.transmit_bytes": signal("bytes_per_second", ["Cache", "Execution"], "Bytes sent over the network"),
  "runtime.restarts": signal("count", running, "Starts after the first one in the last hour"),
  "runtime.uptime_seconds": signal("seconds", running, "Time since it was started"),

  "http.requests": signal("per_minute", ["Environment"], "Requests in the last full minute"),
  "http.errors": signal(
    "per_minute",
    ["Environment"],
    "Requests in the last full minute that got a 5xx status or no answer"
  ),

  "database.connections": signal("count", postgres, "Connections in use"),
  "database.pool_waiting": signal("count", postgres, "Connections whose statement waits for a lock"),
  "database.queries_per_second": signal("per_second", postgres, "Statements that ended"),
  "database.query_latency_avg_ms": signal("milliseconds", postgres, "Average time of a statement"),
  "database.query_latency_p50_ms": latency("Half of the statements took no longer"),
  "database.query_latency_p90_ms": latency("90 percent of the statements took no longer"),
  "database.query_latency_p95_ms": latency("95 percent of the statements took no longer"),
  "database.query_latency_p99_ms": latency("99 percent of the statements took no longer"),

  "queue.backlog_messages": signal(
    "count",
    ["Queue"],
    "Messages that it holds, with those that were given up and are kept"
  ),
  "queue.oldest_message_age_seconds": signal(
    "seconds",
    ["Queue"],
    "How long the oldest message has been in the queue that is not given up; 0 without messages"
  ),
  "cron.failures": signal("count", ["Cron"], "Runs that failed or took too long, in the last hour")
} as const

const shownDefinitions = {
  "runtime.processes": shown("count", running, "Processes"),
  "database.connections_limit": shown("count", postgres, "Connections that it takes"),
  "database.replication_lag_bytes": shown(
    "bytes",
    ["Database"],
    "Log that the slowest standby has still to replay"
  ),
  "database.replication_lag_seconds": shown("seconds", ["Database"], "How far behind the slowest standby is"),
  "database.wal_bytes": shown("bytes_per_second", postgres, "Write-ahead log written"),
  "backup.archive_lag_seconds": shown(
    "seconds",
    ["Database"],
    "How long ago the moment was up to which its backups reach"
  ),
  "redis.used_memory_bytes": shown("bytes", ["Cache"], "Memory that the data takes"),
  "redis.hits": shown("per_second", ["Cache"], "Reads of keys that were there"),
  "redis.misses": shown("per_second", ["Cache"], "Reads of keys that were not there"),
  "redis.evictions": shown("per_second", ["Cache"], "Keys that had to go for others"),
  "redis.memory_limit_bytes": shown("bytes", ["Cache"], "Memory that the data may take"),
  "redis.clients": shown("count", ["Cache"], "Connections in use"),
  "database.archive_failing": shown(
    "boolean",
    postgres,
    "Whether the server cannot put its write-ahead log aside"
  ),
  "cpu.stalled_percent": shown("percent", running, "Time in which a process waited for a processor"),
  "memory.stalled_percent": shown("percent", running, "Time in which a process waited for memory"),
  "disk.stalled_percent": shown("percent", running, "Time in which a process waited for a disk")
} as const

/** What is told of each standby of a database besides, under a name that begins with its number. */
const ofStandbys = [
  "cpu.percent",
  "cpu.pressure",
  "memory.used_bytes",
  "memory.pressure",
  "disk.used_bytes",
  "runtime.restarts",
  "runtime.uptime_seconds",
  "database.connections",
  "database.queries_per_second"
] as const
type StandbyMeasurement = `standby${1 | 2}.${(typeof ofStandbys)[number]}`
const standbyDefinitions = Object.fromEntries(
  ([1, 2] as const).flatMap((number) =>
    ofStandbys.map((name) => {
      const { unit, meaning } = signalDefinitions[name]
      return [`standby${number}.${name}`, shown(unit, ["Database"], `${meaning}, of standby ${number}`)]
    })
  )
) as Readonly<Record<StandbyMeasurement, MeasurementDefinition>>

export type Signal = keyof typeof signalDefinitions
export type Measurement = Signal | keyof typeof shownDefinitions | StandbyMeasurement

/** In the order of displays. */
export const measurements: Readonly<Record<Measurement, MeasurementDefinition>> = {
  ...signalDefinitions,
  ...shownDefinitions,
  ...standbyDefinitions
}

const namesOf = <Name extends string>(definitions: Readonly<Record<Name, unknown>>) =>
  Object.keys(definitions) as ReadonlyArray<string> as ReadonlyArray<Name>

export const signalNames: ReadonlyArray<Signal> = namesOf(signalDefinitions)
export const measurementNames: ReadonlyArray<Measurement> = namesOf(measurements)

export const SignalName = Schema.Literals(signalNames).annotate({
  identifier: "Signal",
  description: "What an alert's condition is about"
})
export const MeasurementName = Schema.Literals(measurementNames).annotate({ identifier: "Measurement" })

export const isMeasurement = Schema.is(MeasurementName)
