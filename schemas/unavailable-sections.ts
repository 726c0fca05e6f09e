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
  auth: optional(Auth)
} as const

/** Their keys: a plan of a project that has one of them is blocked. */
export const unavailableSections: ReadonlyArray<string> = Object.keys(unavailableFields)
