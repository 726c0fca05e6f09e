/** `svc speed`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { environment } from "#src/cli/flags.ts"
import { facts, json, out, paint, table } from "#src/cli/output.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import type { SpeedConfig, SpeedReport } from "./api.ts"
import type { Metric } from "./batch.ts"
import { clientPath } from "./paths.ts"
import type { Rating } from "./score.ts"

type Config = (typeof SpeedConfig)["Type"]
type Report = (typeof SpeedReport)["Type"]
type Vital = Report["summary"]["vitals"][number]

const command = commandIn(inProject)

const colours = { good: "green", "needs-improvement": "yellow", poor: "red" } as const
const rated = (rating: Rating | null, text: string): string =>
  rating === null ? text : paint(colours[rating], text)

const valueText = (metric: Metric, value: number | null): string =>
  value === null
    ? "-"
    : metric === "CLS"
      ? value.toFixed(3)
      : value < 1_000
        ? `${Math.round(value)} ms`
        : `${(value / 1_000).toFixed(2)} s`

const scoreText = (score: number | null): string =>
  score === null ? "-" : rated(score >= 90 ? "good" : score >= 50 ? "needs-improvement" : "poor", `${score}`)

const p75Of = (vitals: ReadonlyArray<Vital>, metric: Metric): string => {
  const vital = vitals.find((one) => one.metric === metric)
  return vital === undefined ? "-" : rated(vital.rating, valueText(metric, vital.p75))
}

const bars = "▁▂▃▄▅▆▇█"
/** A character for each value, as high as it is among 0 and the largest; a dot where there is none. */
export const sparkline = (values: ReadonlyArray<number | null>, largest: number): string =>
  values
    .map((value) =>
      value === null || largest === 0
        ? "·"
        : (bars[Math.min(bars.length - 1, Math.floor((value / largest) * bars.length))] ?? "·")
    )
    .join("")

/** Neighbours are taken together until it fits a line. */
const narrowed = (report: Report, width: number) => {
  const size = Math.ceil(report.series.length / width)
  return Array.from({ length: Math.ceil(report.series.length / size) }, (_, i) => {
    const some = report.series.slice(i * size, (i + 1) * size)
    const scores = some.flatMap(({ score }) => (score === null ? [] : [score]))
    return {
      samples: some.reduce((sum, { samples }) => sum + samples, 0),
      score: scores.length === 0 ? null : scores.reduce((sum, score) => sum + score, 0) / scores.length
    }
  })
}

const reportText = (report: Report): string => {
  const { summary, routes } = report
  const points = narrowed(report, 72)
  const mostSamples = Math.max(0, ...points.map(({ samples }) => samples))
  return [
    facts([
      ["From", report.from],
      ["Until", report.until],
      ["Score", scoreText(summary.score)],
      ["Samples", String(summary.samples)],
      [
        "Score over time",
        sparkline(
          points.map(({ score }) => score),
          100
        )
      ],
      [
        "Samples over time",
        sparkline(
          points.map(({ samples }) => (samples === 0 ? null : samples)),
          mostSamples
        )
      ]
    ]),
    "",
    table(
      ["METRIC", "RATING", "P75", "P90", "P95", "P99", "SAMPLES"],
      summary.vitals.map(({ metric, rating, p75, p90, p95, p99, samples }) => [
        metric,
        rated(rating, rating ?? "-"),
        valueText(metric, p75),
        valueText(metric, p90),
        valueText(metric, p95),
        valueText(metric, p99),
        String(samples)
      ])
    ),
    ...(routes.length === 0
      ? []
      : [
          "",
          table(
            ["ROUTE", "SCORE", "LCP", "INP", "CLS", "FCP", "TTFB", "SAMPLES"],
            routes.map(({ route, score, vitals, samples }) => [
              route,
              scoreText(score),
              ...(["LCP", "INP", "CLS", "FCP", "TTFB"] as const).map((metric) => p75Of(vitals, metric)),
              String(samples)
            ])
          )
        ])
  ].join("\n")
}

const configText = (config: Config): string =>
  facts([
    ["Measuring", config.enabled ? paint("green", "on") : "off"],
    ["Project reference", config.projectRef],
    ["Endpoint", config.endpoint],
    ["Sample rate", String(config.sampleRate)],
    ["Further origins", config.allowedOrigins.join(", ") || "none"],
    ["Kept", `${config.retentionDays} days`],
    [
      "In a page",
      `<script defer src="${new URL(clientPath, config.endpoint).href}" data-project="${config.projectRef}"></script>`
    ]
  ])

const moment = (name: string, description: string) =>
  Flag.Date(name).pipe(Flag.withDescription(description), Flag.map(DateTime.fromDateUnsafe), Flag.optional)

const report = command(
  "report",
  {
    environment,
    filter: {
      from: moment("from", "Where it begins (default seven days before the end)"),
      until: moment("until", "Where it ends (default now)"),
      device: Flag.Literals("device", ["all", "desktop", "mobile"]).pipe(
        Flag.withDescription("What it was measured on"),
        Flag.optional
      ),
      route: Flag.String("route").pipe(Flag.withDescription("This route alone"), Flag.optional),
      granularity: Flag.Literals("granularity", ["hour", "day"]).pipe(
        Flag.withDescription("Of what is shown over time"),
        Flag.optional
      )
    }
  },
  Effect.fnUntraced(function* ({ client: { asMember }, at, json: asJson, flags }) {
    const { params } = yield* at
    const payload = { environment: flags.environment, ...given(flags.filter) }
    const found = yield* call(asMember.speedInsights.query({ params, payload }))
    yield* asJson ? json(found) : out(reportText(found))
  })
).pipe(Command.withDescription("Score, percentiles and routes of at most 30 days"))

const get = command(
  "get",
  {},
  Effect.fnUntraced(function* ({ client: { asMember }, at, json: asJson }) {
    const config = yield* call(asMember.speedInsights.get(yield* at))
    yield* asJson ? json(config) : out(configText(config))
  })
).pipe(Command.withDescription("Whether pages are measured, and what to put into them"))

const enable = command(
  "enable",
  {
    sampleRate: Flag.Finite("sample-rate").pipe(
      Flag.withDescription("Part of the batches that is kept: from 0 to 1"),
      Flag.optional
    ),
    origins: Flag.String("origin").pipe(
      Flag.withDescription("A further origin whose pages may send; repeat it. Replaces those before"),
      Flag.between(0, 50)
    )
  },
  Effect.fnUntraced(function* ({ client: { asMember }, at, json: asJson, flags }) {
    const payload = {
      enabled: true,
      ...(Option.isSome(flags.sampleRate) ? { sampleRate: flags.sampleRate.value } : {}),
      ...(flags.origins.length > 0 ? { allowedOrigins: flags.origins } : {})
    }
    const config = yield* call(asMember.speedInsights.update({ ...(yield* at), payload }))
    yield* asJson ? json(config) : out(configText(config))
  })
).pipe(Command.withDescription("Take measurements"))

const disable = command(
  "disable",
  {},
  Effect.fnUntraced(function* ({ client: { asMember }, at, json: asJson }) {
    const config = yield* call(asMember.speedInsights.update({ ...(yield* at), payload: { enabled: false } }))
    yield* asJson ? json(config) : out(configText(config))
  })
).pipe(Command.withDescription("Take no more of them; what is there stays for its 30 days"))

export const speed = Command.make("speed").pipe(
  Command.withDescription("How fast a project's pages are for their visitors"),
  Command.withSubcommands([report, get, enable, disable]),
  Command.withExamples([
    { command: "svc speed enable shop", description: "Take measurements, and show what to put into pages" },
    { command: "svc speed report shop --device mobile", description: "The last week on phones" }
  ])
)
