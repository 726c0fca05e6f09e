/** `productTelemetry.*`: a few events of a closed form from strangers, and how far an organization has come. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation, publicOperation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { PublicAccess } from "#src/api/definition/public-access.ts"

/** Encoded bytes. */
export const longestBatch = 65_536
/** How far the time of an event may be from that of its arrival. */
export const oldestMs = 24 * 3_600_000
export const aheadMs = 5 * 60_000
export const longestFunnelDays = 90

const Moment = Schema.String.annotate({ format: "date-time" }).pipe(
  Schema.decodeTo(Schema.DateTimeUtcFromString)
)
const AnyUuid = Schema.String.check(
  Schema.isPattern(/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/u, { expected: "a UUID" })
).annotate({ format: "uuid" })

/**
 * Every name that strangers may send has a form of its own, with no room for anything else. Steps that the platform sees
 * itself (`steps`) are none of them.
 */
export const TelemetryEvent = Schema.Struct({
  name: Schema.Literal("cli_installed"),
  at: Moment,
  anonymousId: Schema.optionalKey(
    AnyUuid.annotate({ description: "A random id: only a one-way digest of it is stored" })
  ),
  organizationId: Schema.optionalKey(
    AnyUuid.annotate({ description: "Never believed: only a one-way digest of it is stored" })
  ),
  properties: Schema.Struct({
    channel: Schema.Literal("shell"),
    os: Schema.Literals(["Darwin", "Linux"]),
    arch: Schema.Literals(["arm64", "aarch64", "x86_64"])
  })
}).annotate({ identifier: "TelemetryEvent" })
export type TelemetryEvent = typeof TelemetryEvent.Type

/** What the platform itself records, with what it happens to. */
export const steps = {
  billing_activated: "organization",
  first_deploy_ready: "organization",
  agent_connected: "agent_grant"
} as const
export type Step = keyof typeof steps
export const stepNames = ["billing_activated", "first_deploy_ready", "agent_connected"] as const

export const Funnel = Schema.Struct({
  since: Timestamp,
  until: Timestamp,
  steps: Schema.Array(
    Schema.Struct({
      name: Schema.Literals(stepNames),
      grain: Schema.Literals(["organization", "agent_grant"]).annotate({ description: "What is counted" }),
      count: Schema.Int,
      firstAt: Schema.NullOr(Timestamp),
      lastAt: Schema.NullOr(Timestamp)
    })
  )
}).annotate({ identifier: "TelemetryFunnel" })

export const TelemetryIntake = group(
  "telemetryIntake",
  "What command lines tell of themselves, without saying whose they are."
)
  .add(
    HttpApiEndpoint.post("track", "/v1/telemetry/events", {
      payload: Schema.Struct({
        events: Schema.Array(TelemetryEvent).check(Schema.isMinLength(1), Schema.isMaxLength(100))
      }),
      success: Schema.Struct({
        accepted: Schema.Int.annotate({ description: "Events that were stored" })
      }).pipe(HttpApiSchema.status(202)),
      error: bodyProblems()
    }).annotateMerge(
      publicOperation(
        "productTelemetry.track",
        "Take events of command lines whose users let them tell",
        "write",
        {
          sensitive: true,
          longestBody: longestBatch
        }
      )
    )
  )
  .middleware(PublicAccess)

export const ProductTelemetry = group("productTelemetry", "How far an organization has come.").add(
  HttpApiEndpoint.get("getFunnel", "/v1/orgs/:orgId/telemetry/funnel", {
    params: orgParams,
    query: { since: Schema.optionalKey(Moment), until: Schema.optionalKey(Moment) },
    success: Funnel,
    error: problems()
  }).annotateMerge(
    operation(
      "productTelemetry.getFunnel",
      "read",
      "admin",
      "Steps that the organization took, in at most 90 days"
    )
  )
)
