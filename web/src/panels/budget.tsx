/** What a project may spend in a month, what it has spent, and on what. */
import * as Effect from "effect/Effect"
import { Suspense, useMemo, useState } from "react"
import type { UsageEntry } from "#src/budgets/api.ts"
import { Projects } from "#src/projects/api.ts"
import { client } from "../api/client.ts"
import { budgets } from "../api/money.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { dollars } from "../parts/amounts.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Tick } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Chart } from "../parts/lazy-chart.ts"
import { Link } from "../parts/link.tsx"
import { Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { pathTo } from "../router.ts"
import { Tile, Tiles } from "./tiles.tsx"

export const BudgetPanel = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug, projectId: project }
  const resource = all.find((one) => one.kind === "Budget" && one.project === project)
  const answer = useAnswer(
    `budget ${org.slug} ${project}`,
    () => client.projects.getBudget({ params }),
    resource?.revision
  )
  const { asked, ask, run, dialog } = useDecision<{ readonly etag: string }>(answer.again)
  const [cap, setCap] = useState("")
  const [alertAt, setAlertAt] = useState("")
  const [stop, setStop] = useState(false)
  const isCap = cap === "" || (Number(cap) >= 0 && Number(cap) <= 1_000_000_000)
  const isPercent =
    alertAt === "" || (Number.isInteger(Number(alertAt)) && Number(alertAt) >= 1 && Number(alertAt) <= 100)
  return (
    <>
      <Answered of={answer} what="the budget">
        {({ body: budget, headers }) => (
          <>
            <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
              <h2 className="m-0!">Budget of {budget.month}</h2>
              <Gated by={Projects.endpoints.setBudget} what="Changing it">
                <Button
                  onClick={() => {
                    setCap(budget.monthlyCapUsd === null ? "" : String(budget.monthlyCapUsd))
                    setAlertAt(
                      budget.alertThresholdPercent === null ? "" : String(budget.alertThresholdPercent)
                    )
                    setStop(budget.hardStop)
                    ask({ etag: headers.etag })
                  }}
                >
                  Change
                </Button>
              </Gated>
            </div>
            <Tiles>
              <Tile value={dollars(budget.spentUsd)} says="spent this month (UTC)" />
              <Tile value={dollars(budget.reservedUsd)} says="held for what is going on" />
              <Tile
                value={budget.remainingUsd === null ? "–" : dollars(budget.remainingUsd)}
                says="is left"
                bad={budget.remainingUsd !== null && budget.remainingUsd <= 0}
              />
              <Tile
                value={budget.monthlyCapUsd === null ? "none" : dollars(budget.monthlyCapUsd)}
                says={
                  budget.monthlyCapUsd === null
                    ? "cap: any number may be spent"
                    : budget.hardStop
                      ? "cap: what could cost more is refused"
                      : "cap: what is above it is counted only"
                }
              />
            </Tiles>
            <Confirm
              {...dialog}
              open={asked !== undefined}
              title={`Budget of ${project}`}
              says="It holds from now on, for each calendar month in UTC. What was spent this month counts."
              action="Set it"
              ready={isCap && isPercent}
              confirmed={() =>
                run(() =>
                  client.projects.setBudget({
                    params,
                    // Of what was shown: what somebody else has set since is not overwritten.
                    headers: { "if-match": asked?.etag ?? headers.etag },
                    payload: {
                      monthlyCapUsd: cap === "" ? null : Number(cap),
                      alertThresholdPercent: alertAt === "" ? null : Number(alertAt),
                      hardStop: stop
                    }
                  })
                )
              }
            >
              <Field
                label="Cap, US dollars a month"
                value={cap}
                changed={setCap}
                inputMode="decimal"
                hint="Empty: none."
              />
              <Field
                label="Tell at this percentage of it"
                value={alertAt}
                changed={setAlertAt}
                inputMode="numeric"
                hint="Empty: never."
              />
              <Tick label="Refuse what could cost more than is left" checked={stop} changed={setStop} />
            </Confirm>
          </>
        )}
      </Answered>
      <Usage project={project} />
    </>
  )
}

type Entry = typeof UsageEntry.Type

/** Pages that are read: what a month of a large project has beyond that is left out, and said so. */
const mostPages = 20

/** All of the month, a page at a time. */
const monthOf = (params: { readonly orgId: string; readonly projectId: string }) =>
  Effect.gen(function* () {
    const entries: Array<Entry> = []
    let cursor: string | null = null
    for (let pages = 0; pages < mostPages; pages++) {
      const page: { readonly items: ReadonlyArray<Entry>; readonly nextCursor: string | null } =
        yield* budgets.usage({ params, query: { limit: 100, ...(cursor === null ? {} : { cursor }) } })
      entries.push(...page.items)
      cursor = page.nextCursor
      if (cursor === null) break
    }
    return { entries, cut: cursor !== null }
  })

const Usage = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const answer = useAnswer(`usage ${org.slug} ${project}`, () =>
    monthOf({ orgId: org.slug, projectId: project })
  )
  return (
    <>
      <h2>What it was spent on, this month</h2>
      <Answered of={answer} what="what it was spent on">
        {({ entries, cut }) => (
          <>
            <Days entries={entries} />
            <Panel>
              <Table
                of={byResource(entries)}
                keyOf={({ key }) => key}
                label="What it was spent on"
                empty="Nothing has cost anything yet: servers and disks are counted by the hour."
                columns={[
                  {
                    head: "Resource",
                    look: "written",
                    cell: ({ id, name }) =>
                      id === null ? (
                        name
                      ) : (
                        <Link to={pathTo(org.slug, "resources", id)} className="font-medium hover:underline">
                          {name}
                        </Link>
                      )
                  },
                  { head: "Environment", cell: ({ environment }) => environment ?? "–" },
                  { head: "For", cell: ({ items }) => items.join(", ") },
                  { head: "Spent", look: "number", cell: ({ usd }) => dollars(usd) }
                ]}
              />
            </Panel>
            {cut && (
              <p className="mt-2 text-soft">
                Only the newest days are counted here: svc projects budget usage {project} has all of them.
              </p>
            )}
          </>
        )}
      </Answered>
    </>
  )
}

const byResource = (entries: ReadonlyArray<Entry>) =>
  [...Map.groupBy(entries, ({ resourceId, kind }) => resourceId ?? kind)]
    .map(([key, of]) => ({
      key,
      id: of[0]?.resourceId ?? null,
      name: of[0]?.name ?? key,
      environment: of[0]?.environment ?? null,
      items: [...new Set(of.map(({ item }) => item))],
      usd: of.reduce((sum, { usd }) => sum + usd, 0)
    }))
    .sort((a, b) => b.usd - a.usd)

const Days = ({ entries }: { readonly entries: ReadonlyArray<Entry> }) => {
  const { times, values, sum } = useMemo(() => {
    const days = [...Map.groupBy(entries, ({ date }) => date)]
      .map(
        ([date, of]) => [Date.parse(`${date}T00:00:00Z`), of.reduce((all, { usd }) => all + usd, 0)] as const
      )
      .sort(([a], [b]) => a - b)
    return {
      times: days.map(([at]) => at),
      values: days.map(([, usd]) => usd),
      sum: days.reduce((all, [, usd]) => all + usd, 0)
    }
  }, [entries])
  const lines = useMemo(() => [{ name: "spent", values }], [values])
  if (times.length < 2) return null
  return (
    <figure className="mb-3 rounded-lg border border-line bg-panel px-3.5 pt-3 pb-1">
      <Suspense fallback={<div className="h-[150px]" />}>
        <Chart
          bars
          times={times}
          lines={lines}
          format={dollars}
          says={`Spent by day: ${dollars(sum)} in ${times.length} days`}
        />
      </Suspense>
    </figure>
  )
}
