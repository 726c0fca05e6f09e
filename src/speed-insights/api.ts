/** `speedInsights.*`: what visitors' browsers measured of a project's pages. Where browsers send it is `intake.ts`. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { EnvironmentSlug } from "#schemas/names.ts"
import { projectParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { metrics, Route } from "./batch.ts"
import { fewestSamples, ratings } from "./score.ts"

export const retentionDays = 30

const HttpsOrigin = Schema.String.check(
  Schema.isMaxLength(300),
  Schema.makeFilter((text: string) =>
    URL.canParse(text) && new URL(text).origin === text && text.startsWith("https://")
      ? undefined
      : "must be an https origin as browsers write it, such as https://www.example.com"
  )
)
const SampleRate = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 })).annotate({
  description: "Part of the batches that is kept, before they are stored: from 0 to 1"
})

export const SpeedConfig = Schema.Struct({
  enabled: Schema.Boolean,
  projectRef: Schema.String.annotate({
    description: "Public reference of the project, for pages: it never changes"
  }),
  endpoint: Schema.String.annotate({ format: "uri", description: "Where browsers send what they measure" }),
  sampleRate: SampleRate,
  allowedOrigins: Schema.Array(Schema.String).annotate({
    description:
      "Origins whose pages may send, beside addresses of the project's environments and its verified domains"
  }),
  retentionDays: Schema.Literal(retentionDays)
}).annotate({ identifier: "SpeedInsightsConfig" })

const number = (description: string) => Schema.NullOr(Schema.Finite).annotate({ description })
const Vital = Schema.Struct({
  metric: Schema.Literals(metrics),
  unit: Schema.Literals(["milliseconds", "score"]),
  rating: Schema.NullOr(Schema.Literals(ratings)).annotate({
    description: `Of p75, by the thresholds of Web Vitals; null: fewer than ${fewestSamples} samples`
  }),
  samples: Schema.Int,
  p75: number("At most 1 % off; null: no samples"),
  p90: number("At most 1 % off; null: no samples"),
  p95: number("At most 1 % off; null: no samples"),
  p99: number("At most 1 % off; null: no samples")
}).annotate({ identifier: "SpeedVital" })

const part = {
  score: number(
    `0 to 100, from p75 of LCP, INP, CLS and FCP; null: none of them has ${fewestSamples} samples`
  ),
  samples: Schema.Int.annotate({ description: "Measurements, of all metrics together" })
}
const detailed = { ...part, vitals: Schema.Array(Vital) }

export const SpeedReport = Schema.Struct({
  from: Timestamp.annotate({ description: "The beginning of the first hour that is counted" }),
  until: Timestamp.annotate({ description: "The end of the last hour that is counted" }),
  retentionDays: Schema.Literal(retentionDays),
  summary: Schema.Struct(detailed),
  series: Schema.Array(Schema.Struct({ bucket: Timestamp, ...part })).annotate({
    description: "Each hour or day (UTC) of the window, also those without samples"
  }),
  routes: Schema.Array(Schema.Struct({ route: Schema.String, ...detailed })).annotate({
    description: "Those with the most samples, at most 50"
  })
}).annotate({ identifier: "SpeedReport" })

const moment = (description: string) =>
  Schema.optionalKey(
    Schema.String.annotate({ format: "date-time", description }).pipe(
      Schema.decodeTo(Schema.DateTimeUtcFromString)
    )
  )

const base = "/v1/orgs/:orgId/projects/:projectId/speed-insights"
const target = { type: "project" } as const

export const SpeedInsights = group(
  "speedInsights",
  "How fast a project's pages are for their visitors, as browsers measure it (Web Vitals)."
).add(
  HttpApiEndpoint.get("get", base, {
    params: projectParams,
    success: SpeedConfig,
    error: problems()
  }).annotateMerge(
    operation("speedInsights.get", "read", "member", "Whether pages are measured, and where they send it", {
      target
    })
  ),
  HttpApiEndpoint.put("update", base, {
    params: projectParams,
    payload: Schema.Struct({
      enabled: Schema.Boolean,
      sampleRate: Schema.optionalKey(SampleRate),
      allowedOrigins: Schema.optionalKey(
        Schema.Array(HttpsOrigin).check(Schema.isMaxLength(50), Schema.isUnique())
      )
    }),
    success: SpeedConfig,
    error: bodyProblems(402)
  }).annotateMerge(
    operation(
      "speedInsights.update",
      "write",
      "admin",
      "Switch measuring on or off; what is left out stays as it is",
      { billing: true, target }
    )
  ),
  HttpApiEndpoint.post("query", `${base}/query`, {
    params: projectParams,
    payload: Schema.Struct({
      from: moment("Default: seven days before the end"),
      until: moment("Default: now"),
      environment: Schema.optionalKey(EnvironmentSlug),
      device: Schema.optionalKey(Schema.Literals(["all", "desktop", "mobile"])),
      route: Schema.optionalKey(Route),
      granularity: Schema.optionalKey(
        Schema.Literals(["hour", "day"]).annotate({
          description: "Of the series. Default: hour for windows of up to two days, day for longer ones"
        })
      )
    }),
    success: SpeedReport,
    error: bodyProblems()
  }).annotateMerge(
    operation("speedInsights.query", "read", "member", "Report on at most 30 days of measurements", {
      target
    })
  )
)
