/**
 * The manifest document: everything an organization wants, as one file that is kept in git.
 *
 * Every section is described and validated here, also the ones whose kinds do not exist yet: those are blockers of a
 * plan, never silently ignored. Bounds that no field names keep the cost of a document in proportion to its size.
 */
import * as Schema from "effect/Schema"
import { CacheEvictionPolicy, CachePersistence } from "./cache.ts"
import { CacheSku } from "./catalog.ts"
import { DisplayName } from "./display-text.ts"
import { mostVariables, VariableValue } from "./env-variables.ts"
import { EnvironmentSlug, Name, OrganizationSlug, VariableKey } from "./names.ts"
import { GitSource, PreviewData, RuntimeClass } from "./project.ts"

/** "Leave what is there": what exports show instead of secret values. */
export const masked = "****"

const optional = Schema.optionalKey
const environment = optional(EnvironmentSlug)
const text = (longest = 255) => Schema.NonEmptyString.check(Schema.isMaxLength(longest))
const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const natural = integer(0, 2_147_483_647)
const day = 86_400
const list = <S extends Schema.Top>(item: S, most = 20_000) =>
  Schema.Array(item).check(Schema.isMaxLength(most))
const strings = (most = 100) => list(text(2_048), most)
/** A path of the project: one slash at the start, not two (that would name a host). */
const path = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)/u, { expected: "a path that starts with exactly one slash" }),
  Schema.isMaxLength(2_048)
)
const region = text(64)

/** A map without keys: `Schema.Struct({})` would take anything that is not null. */
const Empty = Schema.Record(Schema.String, Schema.Never.annotate({ expected: "nothing here" }))

const Consumer = Schema.Struct({
  path,
  maxBatchSize: optional(integer(1, 1_000)),
  maxBatchWaitSeconds: optional(integer(0, 3_600)),
  maxRetries: optional(integer(0, 100)),
  retryDelaySeconds: optional(integer(0, day)),
  maxConcurrency: optional(Schema.NullOr(integer(1, 1_000)))
})

const Queue = Schema.Struct({
  name: Name,
  environment,
  retentionSeconds: optional(integer(60, 30 * day)),
  deliveryDelaySeconds: optional(integer(0, day)),
  deadLetterQueue: optional(Schema.NullOr(Name)),
  paused: optional(Schema.Boolean),
  consumer: optional(Consumer)
})

const Cron = Schema.Struct({
  name: Name,
  environment: EnvironmentSlug,
  schedule: text(200),
  timezone: optional(text(64)),
  enabled: optional(Schema.Boolean),
  target: optional(
    Schema.Union([
      Schema.Struct({
        kind: Schema.Literal("http"),
        path,
        method: optional(Schema.Literals(["POST", "PUT", "PATCH"])),
        body: optional(Schema.Json)
      }),
      Schema.Struct({ kind: Schema.Literal("queue"), queue: Name, body: optional(Schema.Json) })
    ])
  ),
  retry: optional(
    Schema.Struct({
      maxAttempts: optional(integer(1, 10)),
      initialDelaySeconds: optional(integer(1, 3_600)),
      maxDelaySeconds: optional(integer(1, day))
    })
  ),
  concurrencyPolicy: optional(Schema.Literals(["allow", "skip", "replace"])),
  timeoutSeconds: optional(integer(1, day))
})

const Database = Schema.Struct({
  name: Name,
  sku: text(64),
  region,
  environment,
  replicas: optional(Schema.Literals([0, 2])),
  backup: optional(
    Schema.Struct({
      pitrDays: optional(integer(0, 365)),
      dailyDays: optional(integer(0, 3_650)),
      weeklyWeeks: optional(integer(0, 520)),
      monthlyMonths: optional(integer(0, 120)),
      destinationIds: optional(strings(20)),
      copyRegions: optional(strings(20))
    })
  )
})
export type ManifestDatabase = typeof Database.Type

const Cache = Schema.Struct({
  name: Name,
  region,
  environment,
  sku: optional(CacheSku),
  persistence: optional(CachePersistence),
  evictionPolicy: optional(CacheEvictionPolicy)
})
export type ManifestCache = typeof Cache.Type

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

const AiGateway = Schema.Struct({
  name: Name,
  allowedModels: strings(),
  monthlyBudgetUsd: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  environment,
  timeoutMs: optional(integer(1, 3_600_000)),
  maxRetries: optional(integer(0, 10)),
  redactPrompts: optional(Schema.Boolean)
})

const CustomerPayments = Schema.Struct({
  secretKey: text(1_024),
  webhookSecret: text(1_024),
  credentialScopes: strings(),
  allowedRedirectOrigins: strings(),
  environment
})

const DatabaseBranch = Schema.Struct({
  sourceEnvironment: EnvironmentSlug,
  sourceDatabase: Name,
  expiresInDays: optional(Schema.NullOr(integer(1, 3_650))),
  deleteOnPreviewClose: optional(Schema.Boolean)
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

const AccessMode = Schema.Literals(["public", "authenticated", "organization", "invite_only"])
const Access = Schema.Struct({
  mode: optional(AccessMode),
  previewMode: optional(
    Schema.Literals(["public", "authenticated", "organization", "invite_only", "inherit"])
  ),
  environments: optional(Schema.Record(EnvironmentSlug, AccessMode))
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

const Maintenance = Schema.Struct({
  enabled: optional(Schema.Boolean),
  schedule: optional(Schema.Literals(["hourly", "daily", "weekly"])),
  categories: optional(strings()),
  environments: optional(list(EnvironmentSlug, 100)),
  autoRemediation: optional(
    Schema.Struct({
      enabled: optional(Schema.Boolean),
      maximumRisk: optional(Schema.Literals(["read", "write"])),
      allowedOperationIds: optional(strings(500)),
      maxActionsPerRun: optional(integer(0, 1_000))
    })
  )
})

const Hostname = Schema.String.check(
  Schema.isPattern(/^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$/u, {
    expected: "a lowercase DNS name"
  }),
  Schema.isMaxLength(253)
)

export const ManifestProject = Schema.Struct({
  name: DisplayName,
  slug: Name,
  runtimeClass: RuntimeClass,
  region: optional(region),
  git: optional(GitSource),
  previewData: optional(PreviewData),
  env: optional(
    Schema.Record(VariableKey, VariableValue)
      .check(Schema.isMaxProperties(mostVariables))
      .annotate({ description: `Variables of production; ${masked} leaves a value as it is` })
  ),
  environments: optional(
    Schema.Record(EnvironmentSlug, Empty).annotate({
      description: "Custom environments; production and preview exist by themselves"
    })
  ),
  domains: optional(list(Hostname, 1_000)),
  storage: optional(list(Schema.Struct({ name: Name, region: optional(region) }), 1_000)),
  queues: optional(list(Queue)),
  crons: optional(list(Cron)),
  databases: optional(list(Database)),
  caches: optional(list(Cache)),
  realtime: optional(list(Realtime)),
  aiGateways: optional(list(AiGateway)),
  customerPayments: optional(list(CustomerPayments, 100)),
  databaseBranch: optional(DatabaseBranch),
  alerts: optional(list(Alert, 1_000)),
  access: optional(Access),
  auth: optional(Auth),
  maintenance: optional(Maintenance)
}).annotate({ identifier: "ManifestProject" })
export type ManifestProject = typeof ManifestProject.Type

export const Manifest = Schema.Struct({
  version: Schema.Literal(1),
  organization: OrganizationSlug,
  projects: optional(list(ManifestProject))
}).annotate({ identifier: "ManifestDocument" })
export type Manifest = typeof Manifest.Type

/** As a JSON Schema document, for editors and other programs. */
export const manifestJsonSchema = () =>
  Schema.toJsonSchemaDocument(Manifest, { onExcessProperty: "error", generateDescriptions: true })

/** Sections of a project that no kind answers for yet. */
export const unavailableSections = [
  "domains",
  "storage",
  "realtime",
  "aiGateways",
  "customerPayments",
  "alerts",
  "access",
  "auth",
  "maintenance"
] as const satisfies ReadonlyArray<keyof ManifestProject>
