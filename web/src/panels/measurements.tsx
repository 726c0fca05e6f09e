/** What is measured of a resource over a time: the few that say most, and the others on request. */
import * as DateTime from "effect/DateTime"
import { Suspense, useMemo, useState } from "react"
import type { Unit } from "#schemas/signal.ts"
import { metrics } from "../api/metrics.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import type { Resource } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Chart } from "../parts/lazy-chart.ts"
import { useEvery } from "./every.ts"
import { inUnit } from "./unit.ts"

/** What says most about each kind. The others are there on request. */
const first: Readonly<Record<string, ReadonlyArray<string>>> = {
  Database: ["database.queries_per_second", "database.connections", "cpu.percent", "memory.used_bytes"],
  DatabaseBranch: ["database.queries_per_second", "database.connections", "cpu.percent", "memory.used_bytes"],
  Cache: ["redis.used_memory_bytes", "redis.clients", "redis.hits", "redis.misses"],
  Queue: ["queue.backlog", "queue.oldest_message_age_seconds"],
  Execution: ["cpu.percent", "memory.used_bytes"],
  Environment: ["http.requests", "http.errors"]
}

const spans = [
  ["1", "an hour"],
  ["6", "6 hours"],
  ["24", "a day"],
  ["168", "a week"]
] as const

export const Measurements = ({ resource }: { readonly resource: Resource }) => {
  const { org } = useCaller()
  const [hours, setHours] = useState<string>("1")
  const [more, setMore] = useState(false)
  const moment = useEvery(30_000)
  const params = { orgId: org.slug, uid: resource.uid }
  const now = useAnswer(`measured ${resource.uid}`, () => metrics.list({ params }), moment)
  const series = useAnswer(
    `series ${resource.uid} ${hours}`,
    () =>
      metrics.query({
        params,
        payload: { from: DateTime.makeUnsafe(Date.now() - Number(hours) * 3_600_000) }
      }),
    moment
  )
  const meanings = new Map(now.value?.measurements.map(({ measurement, meaning }) => [measurement, meaning]))
  const preferred = first[resource.kind] ?? []
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Measurements</h2>
        <select
          aria-label="Time"
          value={hours}
          onChange={(event) => setHours(event.target.value)}
          className="rounded-md border border-faint/60 bg-bg px-2 py-1 text-ink"
        >
          {spans.map(([value, name]) => (
            <option key={value} value={value}>
              the last {name.replace(/^an? /, "")}
            </option>
          ))}
        </select>
      </div>
      <Answered of={series} what="measurements">
        {(answer) => {
          const sampled = answer.series.filter(({ values }) => values.some((value) => value !== null))
          const chosen = sampled.filter(({ measurement }) => preferred.includes(measurement))
          const shown = more || chosen.length === 0 ? sampled : chosen
          if (sampled.length === 0)
            return (
              <p className="rounded-lg border border-line bg-panel px-3.5 py-6 text-soft">
                Nothing was measured in this time.
                {now.value?.history === false &&
                  now.value.measurements.length > 0 &&
                  " Only its newest measurements are kept: as many resources of the organization as may be have a history already."}
              </p>
            )
          return (
            <>
              <div className="grid gap-3.5 md:grid-cols-2">
                {shown.map(({ measurement, unit, values }) => (
                  <Series
                    key={measurement}
                    name={measurement}
                    meaning={meanings.get(measurement) ?? measurement}
                    unit={unit}
                    from={Date.parse(answer.from)}
                    stepMs={answer.stepSeconds * 1_000}
                    values={values}
                  />
                ))}
              </div>
              {chosen.length > 0 && sampled.length > chosen.length && (
                <Button className="mt-3" onClick={() => setMore(!more)} aria-expanded={more}>
                  {more ? "Only the main ones" : `All ${sampled.length}`}
                </Button>
              )}
            </>
          )
        }}
      </Answered>
    </>
  )
}

const Series = ({
  name,
  meaning,
  unit,
  from,
  stepMs,
  values
}: {
  readonly name: string
  readonly meaning: string
  readonly unit: Unit
  readonly from: number
  readonly stepMs: number
  readonly values: ReadonlyArray<number | null>
}) => {
  const format = inUnit[unit]
  const times = useMemo(() => values.map((_, index) => from + index * stepMs), [values, from, stepMs])
  const lines = useMemo(() => [{ name, values }], [name, values])
  const sampled = values.filter((value) => value !== null)
  const last = sampled.at(-1)
  if (last === undefined) return null
  return (
    <figure className="min-w-0 rounded-lg border border-line bg-panel px-3.5 pt-3 pb-1">
      <figcaption className="mb-1 flex items-baseline justify-between gap-3">
        <span className="min-w-0">
          <b className="text-lg font-semibold tracking-tight tabular-nums">{format(last)}</b>{" "}
          <span className="text-[13px] text-soft">{meaning}</span>
        </span>
        <code className="font-mono text-[11px] whitespace-nowrap text-faint max-sm:hidden">{name}</code>
      </figcaption>
      <Suspense fallback={<div className="h-[150px]" />}>
        <Chart
          times={times}
          lines={lines}
          format={format}
          binary={unit === "bytes" || unit === "bytes_per_second"}
          says={`${meaning}: now ${format(last)}, at least ${format(Math.min(...sampled))}, at most ${format(Math.max(...sampled))}`}
        />
      </Suspense>
    </figure>
  )
}
