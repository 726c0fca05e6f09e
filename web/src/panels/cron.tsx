/** A cron job: when it runs next, its runs with their attempts, and a run now. */
import { nextRun } from "#schemas/cron-schedule.ts"
import { Crons } from "#src/crons/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { Table } from "../parts/table.tsx"
import { At, duration, In } from "../parts/time.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"

/** When it runs next, as far as a schedule that can be read tells. */
const nextTimes = (schedule: string, timezone: string, count: number): ReadonlyArray<string> => {
  const times: Array<string> = []
  try {
    let after = Date.now()
    for (;;) {
      const next = nextRun(schedule, timezone, after)
      if (next === undefined || times.length === count) return times
      times.push(new Date(next).toISOString())
      after = next
    }
  } catch {
    return times
  }
}

const colours: Readonly<Record<string, string>> = { succeeded: "text-ok", failed: "text-bad" }

export const CronPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, cronId: resource.uid }
  const moment = useEvery(5_000)
  const job = useAnswer(`cron ${resource.uid}`, () => services.crons.get({ params }), moment)
  const runs = useAnswer(
    `runs ${resource.uid}`,
    () => services.crons.listRuns({ params, query: { limit: 20 } }),
    moment
  )
  const { acting, failure, act } = useAct()
  const shown = job.value?.body
  return (
    <>
      <h2>Runs</h2>
      <div className="mb-2 flex flex-wrap items-center justify-between gap-2">
        <p>
          {shown !== undefined && (
            <>
              <code className="font-mono text-[12.5px]">{shown.schedule}</code> ({shown.timezone}).{" "}
              {shown.nextRunAt === null ? (
                "It is switched off."
              ) : (
                <>
                  Next run <In at={shown.nextRunAt} />.
                </>
              )}
            </>
          )}
        </p>
        <Gated by={Crons.endpoints.trigger} what="Running it by hand">
          <Button
            busy={acting}
            onClick={() =>
              void act(() => services.crons.trigger({ params, headers: idempotent() })).then(runs.again)
            }
          >
            Run now
          </Button>
        </Gated>
      </div>
      {shown !== undefined && shown.nextRunAt !== null && (
        <p className="mb-2 flex flex-wrap gap-x-4 text-soft">
          Next times:
          {nextTimes(shown.schedule, shown.timezone, 5).map((at) => (
            <At key={at} at={at} />
          ))}
        </p>
      )}
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Answered of={runs} what="runs">
          {({ items }) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              empty="It has not run yet."
              columns={[
                {
                  head: "Planned for",
                  cell: ({ scheduledAt, trigger }) => (
                    <>
                      <At at={scheduledAt} />{" "}
                      {trigger === "manual" && <span className="text-faint">by hand</span>}
                    </>
                  )
                },
                {
                  head: "Result",
                  cell: ({ status }) => <span className={colours[status] ?? ""}>{status}</span>
                },
                {
                  head: "Took",
                  look: "number",
                  cell: ({ startedAt, finishedAt }) =>
                    startedAt !== null && finishedAt !== null
                      ? duration(Date.parse(finishedAt) - Date.parse(startedAt))
                      : "–"
                },
                { head: "Attempts", cell: ({ attempts }) => <Attempts of={attempts} /> },
                { head: "Why", look: "soft", cell: ({ reason }) => reason }
              ]}
            />
          )}
        </Answered>
      </Panel>
    </>
  )
}

interface Attempt {
  readonly startedAt: string
  readonly statusCode: number | null
  readonly error: string | null
}

const Attempts = ({ of }: { readonly of: ReadonlyArray<Attempt> }) =>
  of.length === 0 ? (
    "–"
  ) : (
    <details>
      <summary className="tabular-nums">{of.length}</summary>
      <ol className="mt-1 min-w-48 space-y-1 text-soft">
        {of.map(({ startedAt, statusCode, error }) => (
          <li key={startedAt} className="wrap-anywhere">
            <At at={startedAt} /> {statusCode} <span dir="auto">{error}</span>
          </li>
        ))}
      </ol>
    </details>
  )
