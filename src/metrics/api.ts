/** Measurements of what runs: what they are now, and what they were. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Uid } from "#schemas/names.ts"
import { MeasurementName, Unit } from "#schemas/signal.ts"
import { Id, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

const measured = { measurement: MeasurementName, unit: Unit }

const Measured = Schema.Struct({
  ...measured,
  meaning: Schema.String,
  value: Schema.Finite,
  at: Timestamp.annotate({ description: "When it was measured" }),
  ageSeconds: Schema.Finite.annotate({
    description: "How long ago that was; more than 90 seconds: nobody measures it now"
  })
}).annotate({ identifier: "MeasuredValue" })

export const Measurements = Schema.Struct({
  resource: Id,
  history: Schema.Boolean.annotate({
    description:
      "Whether its samples are kept: those of so many resources of an organization are, the first that were measured"
  }),
  measurements: Schema.Array(Measured).annotate({
    description: "What cannot be measured is missing"
  })
}).annotate({ identifier: "Measurements" })

export const aggregations = ["avg", "min", "max", "last", "sum"] as const
export const Aggregation = Schema.Literals(aggregations).annotate({
  identifier: "Aggregation",
  description:
    "What a step tells of its samples; `sum` is of rates alone: the average rate times the time that the step has samples of"
})

const DateTime = Schema.String.annotate({ format: "date-time" }).pipe(
  Schema.decodeTo(Schema.DateTimeUtcFromString)
)

const MetricQuery = Schema.Struct({
  measurements: Schema.optionalKey(
    Schema.Array(MeasurementName)
      .check(Schema.isMinLength(1), Schema.isMaxLength(50))
      .annotate({ description: "Default: all that its kind has" })
  ),
  from: Schema.optionalKey(DateTime.annotate({ description: "Default: an hour before `to`" })),
  to: Schema.optionalKey(DateTime.annotate({ description: "Default: now" })),
  stepSeconds: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 86_400 })).annotate({
      description: "At least so long is a step; default: a 240th of the time"
    })
  ),
  aggregation: Schema.optionalKey(Aggregation)
}).annotate({ identifier: "MetricQuery" })

export const MetricSeries = Schema.Struct({
  resource: Id,
  from: Timestamp.annotate({ description: "When the first step begins" }),
  stepSeconds: Schema.Int,
  aggregation: Aggregation,
  series: Schema.Array(
    Schema.Struct({
      ...measured,
      values: Schema.Array(Schema.NullOr(Schema.Finite)).annotate({
        description: "One for each step, at most 2,000; null: there was no sample"
      })
    })
  )
}).annotate({ identifier: "MetricSeries" })

const params = { ...orgParams, uid: Uid }
const one = "/v1/orgs/:orgId/resources/:uid/metrics"
const target = { type: "resource", param: "uid" } as const

export const Metrics = group(
  "metrics",
  "Measurements of what runs: what they are now, and what they were."
).add(
  HttpApiEndpoint.get("list", one, { params, success: Measurements, error: problems() }).annotateMerge(
    operation("metrics.list", "read", "member", "List what is measured of a resource now", { target })
  ),
  HttpApiEndpoint.post("query", `${one}/query`, {
    params,
    payload: MetricQuery,
    success: MetricSeries,
    error: bodyProblems()
  }).annotateMerge(
    operation("metrics.query", "read", "member", "Read what was measured of a resource over a time", {
      target
    })
  ),
  HttpApiEndpoint.get("export", "/v1/orgs/:orgId/metrics", {
    params: orgParams,
    success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "application/openmetrics-text" })),
    error: problems()
  }).annotateMerge(
    operation(
      "metrics.export",
      "read",
      "member",
      "Export what is measured of all resources now, as OpenMetrics text for a Prometheus to scrape"
    )
  )
)
