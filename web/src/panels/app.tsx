/** An app: what answers, its versions and the way back, its instances and what they print. */
import { useState } from "react"
import { Apps } from "#src/apps/api.ts"
import { Deployments } from "#src/deployments/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"
import { pathTo } from "../router.ts"
import { useEvery } from "./every.ts"
import { LogView } from "./log.tsx"
import type { ServiceProps } from "./service.tsx"
import { sourceText } from "./source-text.ts"
import { Tile, Tiles } from "./tiles.tsx"

export const AppPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const query = { environment: resource.environment ?? "production" }
  const version = `${useEvery(10_000)} ${resource.revision}`
  const app = useAnswer(`app ${resource.uid}`, () => services.apps.get({ params, query }), version)
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState<"rollback" | "restart">()
  const ask = (what: typeof asked) => {
    setFailure(undefined)
    setAsked(what)
  }
  const done = (answer: unknown) => {
    if (answer === undefined) return
    setAsked(undefined)
    app.again()
  }
  const dialog = { busy: acting, failure, close: () => setAsked(undefined) }
  return (
    <>
      <h2>App</h2>
      <Answered of={app} what="the app">
        {({ status, power, instances, cpus, memoryMb, lastFailure }) => (
          <>
            <Tiles>
              <Tile value={status} says="status" bad={status === "failed"} />
              <Tile value={power} says="power" />
              <Tile value={instances} says="instances while it is awake" />
              <Tile value={`${cpus} × ${memoryMb} MiB`} says="processors and memory of each" />
            </Tiles>
            {lastFailure !== null && (
              <p className="mt-2 text-wait wrap-anywhere" dir="auto">
                The last version that was given up: {lastFailure}
              </p>
            )}
          </>
        )}
      </Answered>
      <div className="mt-3 flex flex-wrap gap-2">
        <Gated by={Deployments.endpoints.rollback} what="Rolling back">
          <Button onClick={() => ask("rollback")}>Roll back</Button>
        </Gated>
        <Gated by={Apps.endpoints.restart} what="Restarting">
          <Button onClick={() => ask("restart")}>Restart</Button>
        </Gated>
      </div>
      <Confirm
        {...dialog}
        open={asked === "rollback"}
        title={`Roll back ${project}, ${query.environment}`}
        says="The ready version before the one that answers is started, and takes the requests once it is healthy. Until then what answers goes on answering. Data and variables stay as they are."
        action="Roll back now"
        confirmed={() =>
          void act(() => services.deployments.rollback({ params, query, headers: idempotent() })).then(done)
        }
      />
      <Confirm
        {...dialog}
        open={asked === "restart"}
        title={`Restart ${project}, ${query.environment}`}
        says="New instances of the same version are started with today's variables; the old ones end once the new ones are healthy."
        action="Restart now"
        confirmed={() =>
          void act(() => services.apps.restart({ params, query, headers: idempotent() })).then(done)
        }
      />
      <Versions project={project} environment={query.environment} version={version} />
      <Instances project={project} environment={query.environment} version={version} />
    </>
  )
}

interface PartProps {
  readonly project: string
  readonly environment: string
  /** When to ask again. */
  readonly version: string
}

const Versions = ({ project, environment, version }: PartProps) => {
  const { org } = useCaller()
  const answer = useAnswer(
    `versions ${project} ${environment}`,
    () =>
      services.deployments.list({
        params: { orgId: org.slug, projectId: project },
        query: { environment, limit: 10 }
      }),
    version
  )
  return (
    <>
      <h2>Versions</h2>
      <Panel>
        <Answered of={answer} what="versions">
          {(deployments) => (
            <Table
              of={deployments}
              keyOf={({ id }) => id}
              empty="Nothing was deployed yet: svc deploy brings the first version, of a folder, a commit or an image."
              columns={[
                {
                  head: "Asked for",
                  cell: ({ id, createdAt }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="text-accent hover:underline">
                      <At at={createdAt} />
                    </Link>
                  )
                },
                { head: "Made of", look: "code", cell: ({ source }) => sourceText(source) },
                {
                  head: "State",
                  cell: ({ state, active }) => (
                    <span className={state === "failed" ? "text-bad" : ""}>
                      {state}
                      {active && <b className="font-medium">, answers</b>}
                    </span>
                  )
                },
                { head: "What is new", look: "soft", cell: ({ message }) => message }
              ]}
            />
          )}
        </Answered>
      </Panel>
    </>
  )
}

const Instances = ({ project, environment, version }: PartProps) => {
  const { org } = useCaller()
  const [chosen, setChosen] = useState<string>()
  const answer = useAnswer(
    `instances ${project} ${environment}`,
    () =>
      services.apps.instances({ params: { orgId: org.slug, projectId: project }, query: { environment } }),
    version
  )
  const newest = answer.value?.[0]?.id
  const of = chosen ?? newest
  const base = `/v1/orgs/${encodeURIComponent(org.slug)}/projects/${encodeURIComponent(project)}/app/logs`
  return (
    <>
      <h2>Instances</h2>
      <Panel>
        <Answered of={answer} what="instances">
          {(instances) => (
            <Table
              of={instances.slice(0, 20)}
              keyOf={({ id }) => id}
              empty="None runs."
              columns={[
                { head: "Instance", look: "code", cell: ({ id }) => `…${id.slice(-8)}` },
                { head: "State", cell: ({ state }) => state },
                {
                  head: "Since",
                  cell: ({ startedAt, endedAt }) => {
                    const since = endedAt ?? startedAt
                    return since === null ? "–" : <At at={since} />
                  }
                },
                {
                  head: "Why it ended",
                  look: "soft",
                  cell: ({ exitCode, exitReason }) =>
                    `${exitReason ?? ""}${exitCode === null ? "" : ` (exit code ${exitCode})`}`
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      {of !== undefined && (
        <>
          <h2>What it prints</h2>
          <select
            aria-label="Instance"
            value={of}
            onChange={(event) => setChosen(event.target.value)}
            className={`${inputClass} mb-2 w-auto!`}
          >
            {answer.value?.slice(0, 20).map(({ id, state }) => (
              <option key={id} value={id}>
                …{id.slice(-8)}, {state}
              </option>
            ))}
          </select>
          <LogView key={of} path={`${base}?${new URLSearchParams({ environment, instance: of })}`} />
        </>
      )}
    </>
  )
}
