/** A deployment: how far it is, how it went, and requests going to it once more. */
import { useState } from "react"
import { Deployments } from "#src/deployments/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Gated } from "../parts/gated.tsx"
import { At, duration } from "../parts/time.tsx"
import { LogView } from "./log.tsx"
import type { ServiceProps } from "./service.tsx"
import { sourceText } from "./source-text.ts"
import { Tile, Tiles } from "./tiles.tsx"

export const DeploymentPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, deploymentId: resource.uid }
  const answer = useAnswer(
    `deployment ${resource.uid}`,
    () => services.deployments.get({ params }),
    resource.revision
  )
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState<"cancel" | "promote">()
  const ask = (what: typeof asked) => {
    setFailure(undefined)
    setAsked(what)
  }
  const done = (deployment: unknown) => {
    if (deployment === undefined) return
    setAsked(undefined)
    answer.again()
  }
  const dialog = { busy: acting, failure, close: () => setAsked(undefined) }
  const path = `/v1/orgs/${encodeURIComponent(org.slug)}/projects/${encodeURIComponent(project)}/deployments/${resource.uid}/logs`
  return (
    <>
      <h2>Version</h2>
      <Answered of={answer} what="the deployment">
        {({ state, active, source, message, error, createdAt, readyAt, finishedAt, imageKept }) => (
          <>
            <Tiles>
              <Tile value={state} says="state" bad={state === "failed"} />
              <Tile value={active ? "yes" : "no"} says="takes the requests" />
              <Tile value={<At at={createdAt} />} says="asked for" />
              <Tile
                value={readyAt === null ? "–" : duration(Date.parse(readyAt) - Date.parse(createdAt))}
                says="until it was ready"
              />
            </Tiles>
            {error !== null && (
              <p className="mt-2 text-bad wrap-anywhere" dir="auto">
                {error}
              </p>
            )}
            <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
              <span className="min-w-0 wrap-anywhere">
                <code className="font-mono text-[12.5px]">{sourceText(source)}</code>{" "}
                {message !== null && (
                  <span className="text-soft" dir="auto">
                    {message}
                  </span>
                )}
              </span>
              {readyAt === null && finishedAt === null && (
                <Gated by={Deployments.endpoints.cancel} what="Ending it">
                  <Button onClick={() => ask("cancel")}>End it</Button>
                </Gated>
              )}
              {readyAt !== null && !active && imageKept && (
                <Gated by={Deployments.endpoints.promote} what="Promoting it">
                  <Button onClick={() => ask("promote")}>Promote</Button>
                </Gated>
              )}
            </div>
          </>
        )}
      </Answered>
      <Confirm
        {...dialog}
        open={asked === "cancel"}
        title="End this deployment"
        says="It never takes requests: what answers now goes on answering."
        action="End the deployment"
        look="danger"
        confirmed={() =>
          void act(() => services.deployments.cancel({ params, headers: idempotent() })).then(done)
        }
      />
      <Confirm
        {...dialog}
        open={asked === "promote"}
        title="Have the requests go to this version"
        says="Its instances are started beside those that answer now, and take the requests once they are healthy. Variables are those of today."
        action="Promote it"
        confirmed={() =>
          void act(() => services.deployments.promote({ params, headers: idempotent() })).then(done)
        }
      />
      <h2>Log</h2>
      <LogView path={path} />
    </>
  )
}
