/** A cron job: when it runs next, its runs with their attempts, and a run now. */
import { Crons } from "#src/crons/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Gated } from "../parts/gated.tsx"
import { Empty, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { At, duration, In } from "../parts/time.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"

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
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Answered of={runs} what="runs">
          {({ items }) =>
            items.length === 0 ? (
              <Empty>It has not run yet.</Empty>
            ) : (
              <table className="w-full">
                <thead>
                  <tr>
                    <th>Planned for</th>
                    <th>Result</th>
                    <th>Took</th>
                    <th>Attempts</th>
                    <th>Why</th>
                  </tr>
                </thead>
                <tbody>
                  {items.map(
                    ({ id, scheduledAt, status, trigger, startedAt, finishedAt, attempts, reason }) => (
                      <tr key={id}>
                        <td>
                          <At at={scheduledAt} />{" "}
                          {trigger === "manual" && <span className="text-faint">by hand</span>}
                        </td>
                        <td className={colours[status] ?? ""}>{status}</td>
                        <td className="tabular-nums">
                          {startedAt !== null && finishedAt !== null
                            ? duration(Date.parse(finishedAt) - Date.parse(startedAt))
                            : "–"}
                        </td>
                        <td className="tabular-nums">{attempts.length}</td>
                        <td className="text-soft wrap-anywhere" dir="auto">
                          {reason}
                        </td>
                      </tr>
                    )
                  )}
                </tbody>
              </table>
            )
          }
        </Answered>
      </Panel>
    </>
  )
}
