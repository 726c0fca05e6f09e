/** `Cron`: calls the app of its environment, or publishes to a queue, by a schedule. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"
import { warning } from "./condition.ts"
import { canonicalSchedule, isTimezone, scheduleFault } from "./cron-schedule.ts"
import { isTooDeep } from "./json-depth.ts"
import { defineKind } from "./kind.ts"
import { listSection } from "./manifest-mapping.ts"
import { Name } from "./names.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const day = 86_400

/** Leases of runs are renewed, so the bound is only that nothing goes on for ever. */
export const maxTimeoutSeconds = day

/** Bytes of a body, so that it fits into the 128,000 bytes of the signed envelope. */
export const longestBody = 122_880
/** Levels of a body, so that a manifest that holds it is not too deep. */
export const deepestBody = 48

export const CronSchedule = Schema.String.pipe(
  Schema.decodeTo(
    Schema.String.check(
      Schema.isMaxLength(200),
      Schema.makeFilter((text: string) => scheduleFault(text))
    ),
    {
      decode: SchemaGetter.transform(canonicalSchedule),
      encode: SchemaGetter.passthrough()
    }
  )
).annotate({
  description: "Five fields: minute, hour, day of month, month, day of week. Days of both kinds mean either"
})

export const Timezone = Schema.String.check(
  Schema.isMaxLength(64),
  Schema.makeFilter((name: string) =>
    isTimezone(name) ? undefined : "must be the IANA name of a time zone, such as Europe/Berlin"
  )
)

/** A path of the app: one slash at the start, not two (that would name a host). */
export const AppPath = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)[^\s#\\]*$/u, {
    expected: "a path that starts with exactly one slash, without spaces, # and backslashes"
  }),
  Schema.isMaxLength(2_048)
)

export const CronBody = Schema.Json.check(
  Schema.makeFilter((body: Schema.Json) =>
    isTooDeep(body, deepestBody) ? `must not be nested deeper than ${deepestBody} levels` : undefined
  ),
  Schema.makeFilter((body: Schema.Json) =>
    Buffer.byteLength(JSON.stringify(body)) > longestBody
      ? `must be at most ${longestBody} bytes of JSON`
      : undefined
  )
)

export const CronTarget = Schema.Union([
  Schema.Struct({
    kind: Schema.Literal("http"),
    path: AppPath,
    method: Schema.Literals(["POST", "PUT", "PATCH"]).pipe(
      Schema.withDecodingDefaultKey(Effect.succeed("POST" as const))
    ),
    body: Schema.optionalKey(CronBody)
  }),
  Schema.Struct({ kind: Schema.Literal("queue"), queue: Name, body: Schema.optionalKey(CronBody) })
]).annotate({ identifier: "CronTarget" })
export type CronTarget = typeof CronTarget.Type

export const CronRetry = Schema.Struct({
  maxAttempts: integer(1, 10).pipe(Schema.withDecodingDefaultKey(Effect.succeed(3))),
  initialDelaySeconds: integer(1, 3_600).pipe(Schema.withDecodingDefaultKey(Effect.succeed(10))),
  maxDelaySeconds: integer(1, day).pipe(Schema.withDecodingDefaultKey(Effect.succeed(3_600)))
})
  .check(
    Schema.makeFilter((retry: { readonly initialDelaySeconds: number; readonly maxDelaySeconds: number }) =>
      retry.maxDelaySeconds < retry.initialDelaySeconds
        ? { path: ["maxDelaySeconds"], issue: "must not be less than initialDelaySeconds" }
        : undefined
    )
  )
  .annotate({ identifier: "CronRetry" })

export const ConcurrencyPolicy = Schema.Literals(["allow", "skip", "replace"]).annotate({
  description:
    "What happens at the time of a run while an earlier one goes on: both run, the new one is skipped, or it replaces the other"
})

export const CronSpec = Schema.Struct({
  schedule: CronSchedule,
  timezone: Timezone.pipe(Schema.withDecodingDefaultKey(Effect.succeed("UTC"))),
  enabled: Schema.Boolean.pipe(Schema.withDecodingDefaultKey(Effect.succeed(true))),
  target: CronTarget,
  retry: CronRetry.pipe(Schema.withDecodingDefaultKey(Effect.succeed({}))),
  concurrencyPolicy: ConcurrencyPolicy.pipe(Schema.withDecodingDefaultKey(Effect.succeed("skip" as const))),
  /** How long one attempt may take. */
  timeoutSeconds: integer(1, maxTimeoutSeconds).pipe(Schema.withDecodingDefaultKey(Effect.succeed(300)))
}).annotate({ identifier: "CronSpec" })
export type CronSpec = typeof CronSpec.Type

export const CronStatus = Schema.Struct({
  /** Whether the schedule is in force: false for a job that is switched off. */
  scheduled: Schema.Boolean
}).annotate({ identifier: "CronStatus" })
export type CronStatus = typeof CronStatus.Type

export const Cron = defineKind({
  name: "Cron",
  summary: "Calls the app of its environment, or publishes to a queue, by a schedule.",
  scope: "environment",
  spec: CronSpec,
  status: CronStatus,
  fields: Object.keys(CronSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [{ path: "/target/queue", kind: "Queue", by: "name", required: true }],
  singleton: false,
  deleteRole: "admin",
  reasons: { NoQueue: warning("The queue that it publishes to is not there; it goes on when the queue is") },
  manifest: listSection("crons"),
  deadlineSeconds: 300
})
