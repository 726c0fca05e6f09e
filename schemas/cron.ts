/** `Cron`: calls the app of its environment, or publishes to a queue, by a schedule. */
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"
import { warning } from "./condition.ts"
import { canonicalSchedule, isTimezone, scheduleFault } from "./cron-schedule.ts"
import { checkedWhenDecoded, inputOf, withDefault } from "./input.ts"
import { isTooDeep } from "./json-depth.ts"
import { defineKind } from "./kind.ts"
import { listSection } from "./manifest-mapping.ts"
import { EnvironmentSlug, Name } from "./names.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const day = 86_400

/** Leases of runs are renewed, so the bound is only that nothing goes on for ever. */
const maxTimeoutSeconds = day

/** Bytes of a body, so that it fits into the 128,000 bytes of the signed envelope. */
const longestBody = 122_880
/** Levels of a body, so that a manifest that holds it is not too deep. */
const deepestBody = 48

const fiveFields = Schema.String.check(Schema.isMaxLength(200)).annotate({
  description: "Five fields: minute, hour, day of month, month, day of week. Days of both kinds mean either"
})
const CronSchedule = fiveFields.pipe(
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
)

const timezoneName = Schema.String.check(Schema.isMaxLength(64))
const Timezone = checkedWhenDecoded(
  timezoneName,
  timezoneName.check(
    Schema.makeFilter((name: string) =>
      isTimezone(name) ? undefined : "must be the IANA name of a time zone, such as Europe/Berlin"
    )
  )
)

/** A path of the app: one slash at the start, not two (that would name a host). */
const AppPath = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)[^\s#\\]*$/u, {
    expected: "a path that starts with exactly one slash, without spaces, # and backslashes"
  }),
  Schema.isMaxLength(2_048)
)

const CronBody = checkedWhenDecoded(
  Schema.Json,
  Schema.Json.check(
    Schema.makeFilter((body: Schema.Json) =>
      isTooDeep(body, deepestBody) ? `must not be nested deeper than ${deepestBody} levels` : undefined
    ),
    Schema.makeFilter((body: Schema.Json) =>
      new TextEncoder().encode(JSON.stringify(body)).length > longestBody
        ? `must be at most ${longestBody} bytes of JSON`
        : undefined
    )
  )
)

export const CronMethod = Schema.Literals(["POST", "PUT", "PATCH"])

export const CronTarget = Schema.Union([
  Schema.Struct({
    kind: Schema.Literal("http"),
    path: AppPath.annotateKey({ description: "What it calls, from the origin of the app on" }),
    method: withDefault(CronMethod, "POST"),
    body: Schema.optionalKey(CronBody)
  }),
  Schema.Struct({
    kind: Schema.Literal("queue"),
    queue: Name.annotateKey({ description: "A queue of the same environment" }),
    body: Schema.optionalKey(CronBody)
  })
])
export type CronTarget = typeof CronTarget.Type

export const CronRetry = Schema.Struct({
  maxAttempts: withDefault(integer(1, 10), 3, "The first one included"),
  initialDelaySeconds: withDefault(integer(1, 3_600), 10, "Before the second attempt; it grows from there"),
  maxDelaySeconds: withDefault(integer(1, day), 3_600, "Between two attempts at most")
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
  timezone: withDefault(Timezone, "UTC", "IANA name of the time zone that the schedule is read in"),
  enabled: withDefault(Schema.Boolean, true, "Whether it runs by its schedule"),
  target: CronTarget.annotateKey({ description: "What it does" }),
  retry: withDefault(CronRetry, {}, "What follows an attempt that fails"),
  concurrencyPolicy: withDefault(ConcurrencyPolicy, "skip"),
  timeoutSeconds: withDefault(integer(1, maxTimeoutSeconds), 300, "How long one attempt may take")
}).annotate({ identifier: "CronSpec" })
export type CronSpec = typeof CronSpec.Type
/** What users may give of a cron job, besides its name. */
export const CronInput = inputOf(CronSpec)

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
  manifest: listSection("crons", "Calls of the app, or messages to a queue, by a schedule", {
    environment: EnvironmentSlug,
    ...CronInput.fields,
    // Without one the document can be read; a plan says that it is missing.
    target: Schema.optionalKey(CronInput.fields.target)
  }),
  deadlineSeconds: 300
})
