/**
 * Sections of a project that manifests have and no kind answers for yet. They are described and validated all the same:
 * a plan says that they are not available, and never ignores them. A kind that takes one over states it itself, and it
 * goes from here.
 */
import * as Schema from "effect/Schema"
import { Region } from "./catalog.ts"
import { EnvironmentSlug, Name } from "./names.ts"

const optional = Schema.optionalKey
const environment = optional(EnvironmentSlug)
const text = (longest = 255) => Schema.NonEmptyString.check(Schema.isMaxLength(longest))
const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const natural = integer(0, 2_147_483_647)
const day = 86_400
const list = <S extends Schema.Top>(item: S, most = 20_000) =>
  Schema.Array(item).check(Schema.isMaxLength(most))
const strings = (most = 100) => list(text(2_048), most)

const Realtime = Schema.Struct({
  name: Name,
  environment,
  region: optional(Schema.Literal("global")),
  retentionSeconds: optional(natural),
  presenceEnabled: optional(Schema.Boolean),
  maxConnections: optional(natural),
  maxMessagesPerSecond: optional(natural),
  paused: optional(Schema.Boolean)
})

/** What an alert can watch. */
export const alertSignals = [
  "database.unavailable",
  "backup.archive_failed",
  "storage.capacity",
  "cpu.pressure",
  "memory.pressure",
  "database.pool_saturation",
  "queue.backlog",
  "cpu.percent",
  "memory.used_bytes",
  "memory.limit_bytes",
  "disk.used_bytes",
  "disk.limit_bytes",
  "disk.read_iops",
  "disk.write_iops",
  "network.receive_bytes",
  "network.transmit_bytes",
  "runtime.restarts",
  "runtime.uptime_seconds",
  "http.requests",
  "http.errors",
  "database.connections",
  "database.pool_waiting",
  "database.queries_per_second",
  "database.query_latency_avg_ms",
  "database.query_latency_p50_ms",
  "database.query_latency_p90_ms",
  "database.query_latency_p95_ms",
  "database.query_latency_p99_ms",
  "queue.backlog_messages",
  "queue.oldest_message_age_seconds",
  "cron.failures"
] as const

const nullable = optional(Schema.NullOr(text()))
const Alert = Schema.Struct({
  name: text(100),
  enabled: optional(Schema.Boolean),
  severity: Schema.Literals(["info", "warning", "critical"]),
  scope: Schema.Struct({ environment: nullable, database: nullable, queue: nullable, cron: nullable }),
  condition: optional(
    Schema.Struct({
      signal: optional(Schema.Literals(alertSignals)),
      operator: optional(Schema.Literals(["gt", "gte", "lt", "lte", "eq"])),
      threshold: optional(Schema.NullOr(Schema.Finite)),
      durationSeconds: optional(integer(0, 30 * day))
    })
  ),
  channels: optional(
    list(Schema.Struct({ kind: Schema.Literal("dashboard"), destination: Schema.Null }), 10)
  ),
  cooldownSeconds: optional(integer(0, 30 * day))
})

const ttl = optional(integer(1, 10 * 365 * day))
const Auth = Schema.Struct({
  enabled: optional(Schema.Boolean),
  allowedOrigins: optional(strings()),
  redirectUrls: optional(strings()),
  emailPassword: optional(Schema.Boolean),
  magicLink: optional(Schema.Boolean),
  passwordMinLength: optional(integer(8, 128)),
  accessTokenTtlSeconds: ttl,
  refreshTokenTtlSeconds: ttl,
  sessionIdleTtlSeconds: ttl,
  sessionMaxTtlSeconds: ttl,
  magicLinkTtlSeconds: ttl,
  passwordResetTtlSeconds: ttl
})

export const unavailableFields = {
  storage: optional(list(Schema.Struct({ name: Name, region: optional(Region) }), 1_000)),
  realtime: optional(list(Realtime)),
  alerts: optional(list(Alert, 1_000)),
  auth: optional(Auth)
} as const

/** Their keys: a plan of a project that has one of them is blocked. */
export const unavailableSections: ReadonlyArray<string> = Object.keys(unavailableFields)
