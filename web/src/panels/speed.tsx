/** How fast a project's pages are for their visitors: p75 of each metric, by route, against the thresholds. */

import * as DateTime from "effect/DateTime"
import { Suspense, useMemo, useState } from "react"
import { SpeedInsights, type SpeedReport } from "#src/speed-insights/api.ts"
import { scales } from "#src/speed-insights/score.ts"
import { speedInsights } from "../api/speed.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { count } from "../parts/amounts.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Chart } from "../parts/lazy-chart.ts"
import { Code, Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"

type Report = typeof SpeedReport.Type
type Vital = Report["summary"]["vitals"][number]
type Metric = Vital["metric"]

/** In the order in which a visitor meets them. */
const metrics: ReadonlyArray<readonly [Metric, string]> = [
  ["TTFB", "until the first byte"],
  ["FCP", "until something is painted"],
  ["LCP", "until the largest part is painted"],
  ["INP", "from an input to the next frame"],
  ["CLS", "how much the layout shifts"]
]
const colours = { good: "text-ok", "needs-improvement": "text-wait", poor: "text-bad" } as const
const words = { good: "good", "needs-improvement": "needs improvement", poor: "poor" } as const

const shown = (metric: Metric, value: number): string =>
  metric === "CLS"
    ? value.toFixed(2)
    : value >= 1_000
      ? `${(value / 1_000).toFixed(2)} s`
      : `${Math.round(value)} ms`

const days = [
  ["1", "a day"],
  ["7", "a week"],
  ["30", "30 days"]
] as const
const devices = [
  ["all", "all devices"],
  ["desktop", "desktop"],
  ["mobile", "mobile"]
] as const

export const SpeedPanel = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug, projectId: project }
  const config = useAnswer(`speed ${org.slug} ${project}`, () => speedInsights.get({ params }))
  const [window, setWindow] = useState<(typeof days)[number][0]>("7")
  const [device, setDevice] = useState<(typeof devices)[number][0]>("all")
  const [environment, setEnvironment] = useState("")
  const report = useAnswer(`report ${org.slug} ${project} ${window} ${device} ${environment}`, () =>
    speedInsights.query({
      params,
      payload: {
        from: DateTime.makeUnsafe(Date.now() - Number(window) * 86_400_000),
        device,
        ...(environment === "" ? {} : { environment })
      }
    })
  )
  const environments = all.filter((one) => one.kind === "Environment" && one.project === project)
  return (
    <>
      <Answered of={config} what="whether pages are measured">
        {(now) => <Measuring project={project} config={now} changed={config.again} />}
      </Answered>
      <div className="mt-6 mb-3 flex flex-wrap gap-3">
        <Choice label="Time" value={window} of={days} changed={setWindow} />
        <Choice label="Devices" value={device} of={devices} changed={setDevice} />
        <Choice
          label="Environment"
          value={environment}
          of={[["", "all"], ...environments.map(({ name }) => [name, name] as const)]}
          changed={setEnvironment}
        />
      </div>
      <Answered of={report} what="the report">
        {(found) => <Shown report={found} />}
      </Answered>
    </>
  )
}

const Measuring = ({
  project,
  config,
  changed
}: {
  readonly project: string
  readonly config: {
    readonly enabled: boolean
    readonly endpoint: string
    readonly projectRef: string
    readonly sampleRate: number
    readonly allowedOrigins: ReadonlyArray<string>
  }
  readonly changed: () => void
}) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const { asked, ask, run, dialog } = useDecision<"change" | "switch">(changed)
  const [rate, setRate] = useState("100")
  const [origins, setOrigins] = useState("")
  const percent = Number(rate)
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">
          {config.enabled
            ? `Pages are measured, ${Math.round(config.sampleRate * 100)} % of visits`
            : "Pages are not measured"}
        </h2>
        <Gated by={SpeedInsights.endpoints.update} what="Changing it">
          <span className="flex gap-2">
            {config.enabled && (
              <Button
                onClick={() => {
                  setRate(String(config.sampleRate * 100))
                  setOrigins(config.allowedOrigins.join("\n"))
                  ask("change")
                }}
              >
                Change
              </Button>
            )}
            <Button look={config.enabled ? "plain" : "main"} onClick={() => ask("switch")}>
              {config.enabled ? "Stop measuring" : "Measure pages"}
            </Button>
          </span>
        </Gated>
      </div>
      {config.enabled && (
        <details className="text-soft">
          <summary>What pages need</summary>
          <Code>{`<script defer src="${new URL("/v1/speed-insights/client.js", config.endpoint).href}" data-project="${config.projectRef}"></script>`}</Code>
        </details>
      )}
      <Confirm
        {...dialog}
        open={asked === "switch"}
        title={config.enabled ? "Stop measuring" : "Measure pages"}
        says={
          config.enabled
            ? "Nothing more is taken. What is there stays for its 30 days."
            : "Browsers of visitors send how fast pages were for them: times and routes, nothing that tells who they are."
        }
        action={config.enabled ? "Stop it" : "Measure them"}
        confirmed={() => run(() => speedInsights.update({ params, payload: { enabled: !config.enabled } }))}
      />
      <Confirm
        {...dialog}
        open={asked === "change"}
        title="What is measured"
        says="It holds for what browsers send from now on."
        action="Change it"
        ready={rate !== "" && percent >= 0 && percent <= 100}
        confirmed={() =>
          run(() =>
            speedInsights.update({
              params,
              payload: {
                enabled: true,
                sampleRate: percent / 100,
                allowedOrigins: origins.split(/\s+/).filter((origin) => origin !== "")
              }
            })
          )
        }
      >
        <Field label="Visits that are kept, percent" value={rate} changed={setRate} inputMode="decimal" />
        <Field
          label="Other origins that may send"
          value={origins}
          changed={setOrigins}
          hint="Beside the project's own addresses and domains; several with spaces between them."
        />
      </Confirm>
    </>
  )
}

const Shown = ({ report: { summary, series, routes } }: { readonly report: Report }) => {
  const times = useMemo(() => series.map(({ bucket }) => Date.parse(bucket)), [series])
  const lines = useMemo(() => [{ name: "score", values: series.map(({ score }) => score) }], [series])
  if (summary.samples === 0)
    return (
      <p className="rounded-lg border border-line bg-panel px-3.5 py-6 text-soft">
        No visitor's browser has sent anything in this time.
      </p>
    )
  const of = new Map(summary.vitals.map((vital) => [vital.metric, vital]))
  return (
    <>
      <div className="grid grid-cols-2 gap-3.5 lg:grid-cols-6">
        <div className="rounded-lg border border-line bg-panel px-3.5 py-3">
          <div className="text-xl font-semibold tabular-nums">{summary.score ?? "–"}</div>
          <div className="text-[13px] text-soft">score of 100, {count(summary.samples)} samples</div>
        </div>
        {metrics.map(([metric, says]) => (
          <Gauge key={metric} metric={metric} says={says} vital={of.get(metric)} />
        ))}
      </div>
      <h2>Score over time</h2>
      <figure className="rounded-lg border border-line bg-panel px-3.5 pt-3 pb-1">
        <Suspense fallback={<div className="h-[150px]" />}>
          <Chart
            times={times}
            lines={lines}
            thresholds={[50, 90]}
            format={(value) => String(Math.round(value))}
            says={`Score of ${series.length} times, at 90 good and below 50 poor; now ${summary.score ?? "not known"}`}
          />
        </Suspense>
      </figure>
      <h2>By route, p75</h2>
      <Panel>
        <Table
          of={routes}
          keyOf={({ route }) => route}
          label="By route"
          empty="No route was measured."
          columns={[
            { head: "Route", look: "code", cell: ({ route }) => route },
            { head: "Score", look: "number", cell: ({ score }) => score ?? "–" },
            ...metrics.map(([metric]) => ({
              head: metric,
              look: "number" as const,
              cell: ({ vitals }: Report["routes"][number]) => {
                const vital = vitals.find((one) => one.metric === metric)
                return vital === undefined || vital.p75 === null ? (
                  "–"
                ) : (
                  <Rated metric={metric} vital={vital} value={vital.p75} />
                )
              }
            })),
            { head: "Samples", look: "number" as const, cell: ({ samples }) => count(samples) }
          ]}
        />
      </Panel>
    </>
  )
}

const Rated = ({
  metric,
  vital,
  value
}: {
  readonly metric: Metric
  readonly vital: Vital
  readonly value: number
}) => (
  <span
    className={vital.rating === null ? "text-faint" : colours[vital.rating]}
    title={vital.rating === null ? "too few samples to say" : words[vital.rating]}
  >
    {shown(metric, value)}
  </span>
)

/** p75 on a line whose parts are good, in between and poor. */
const Gauge = ({
  metric,
  says,
  vital
}: {
  readonly metric: Metric
  readonly says: string
  readonly vital: Vital | undefined
}) => {
  const { good, poor } = scales[metric]
  const end = poor * 1.5
  const p75 = vital?.p75 ?? null
  return (
    <div className="rounded-lg border border-line bg-panel px-3.5 py-3">
      <div className="flex items-baseline justify-between gap-2">
        <span className="text-xl font-semibold tabular-nums">{p75 === null ? "–" : shown(metric, p75)}</span>
        <span className="text-[13px] font-medium">{metric}</span>
      </div>
      <div className="text-[13px] text-soft">{says}</div>
      <div aria-hidden="true" className="relative mt-2 flex h-1.5 gap-px overflow-visible">
        <span className="h-full rounded-l-full bg-ok/60" style={{ width: `${(good / end) * 100}%` }} />
        <span className="h-full bg-wait/60" style={{ width: `${((poor - good) / end) * 100}%` }} />
        <span className="h-full flex-1 rounded-r-full bg-bad/60" />
        {p75 !== null && (
          <span
            className="absolute -top-1 h-3.5 w-0.5 -translate-x-1/2 bg-ink"
            style={{ left: `${Math.min(100, (p75 / end) * 100)}%` }}
          />
        )}
      </div>
      {vital !== undefined && vital.rating !== null && (
        <div className={`mt-1.5 text-[13px] ${colours[vital.rating]}`}>{words[vital.rating]}</div>
      )}
    </div>
  )
}
