/** An execution: how it went, what it printed, and its end before its time. */
import { useState } from "react"
import { Executions } from "#src/executions/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Gated } from "../parts/gated.tsx"
import { Problem } from "../parts/problem.tsx"
import { Ago, duration } from "../parts/time.tsx"
import { LogView } from "./log.tsx"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

export const ExecutionPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, executionId: resource.uid }
  const answer = useAnswer(
    `execution ${resource.uid}`,
    () => services.executions.get({ params }),
    resource.revision
  )
  const { acting, failure, act } = useAct()
  const [asked, setAsked] = useState(false)
  const path = `/v1/orgs/${encodeURIComponent(org.slug)}/projects/${encodeURIComponent(project)}/executions/${resource.uid}/logs`
  return (
    <>
      <h2>Run</h2>
      <Answered of={answer} what="the run">
        {({ status, exitCode, image, command, startedAt, finishedAt, error }) => (
          <>
            <Tiles>
              <Tile value={status} says="status" bad={status === "failed"} />
              <Tile value={exitCode ?? "–"} says="exit code" />
              <Tile value={startedAt === null ? "–" : <Ago at={startedAt} />} says="since it began" />
              <Tile
                value={
                  startedAt === null || finishedAt === null
                    ? "–"
                    : duration(Date.parse(finishedAt) - Date.parse(startedAt))
                }
                says="took"
              />
            </Tiles>
            {error !== null && (
              <p className="mt-2 text-bad wrap-anywhere" dir="auto">
                {error}
              </p>
            )}
            <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
              <code className="min-w-0 font-mono text-[12.5px] wrap-anywhere">
                {image} {command.join(" ")}
              </code>
              {finishedAt === null && (
                <Gated by={Executions.endpoints.cancel} what="Cancelling">
                  <Button onClick={() => setAsked(true)}>End it</Button>
                </Gated>
              )}
            </div>
          </>
        )}
      </Answered>
      <Confirm
        open={asked}
        title={`End ${resource.name}`}
        says="Its container is told to end, and killed when it does not. What it has done until then stays done; it cannot go on."
        action="End it"
        look="danger"
        busy={acting}
        failure={failure}
        close={() => setAsked(false)}
        confirmed={() =>
          void act(() => services.executions.cancel({ params, headers: idempotent() })).then((ended) => {
            if (ended === undefined) return
            setAsked(false)
            answer.again()
          })
        }
      />
      {failure !== undefined && !asked && <Problem failure={failure} />}
      <h2>Log</h2>
      <LogView path={path} />
    </>
  )
}
