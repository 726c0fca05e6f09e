/** Commands that run once in a container: a new one, and those that ran. */
import { useState } from "react"
import { Executions } from "#src/executions/api.ts"
import { services } from "../api/services.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice, Tick } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { At, duration } from "../parts/time.tsx"
import { go, pathTo } from "../router.ts"
import { useEvery } from "./every.ts"

const { executions } = services

type Asked = { readonly what: "run" } | { readonly what: "cancel"; readonly id: string }

export const ExecutionsPanel = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const answer = useAnswer(
    `executions ${org.slug} ${project}`,
    () => executions.list({ params, query: { limit: 50 } }),
    useEvery(5_000)
  )
  const offers = useAnswer(`availability ${org.slug} ${project}`, () => executions.availability({ params }))
  const { asked, ask, run, dialog } = useDecision<Asked>(answer.again)
  const [image, setImage] = useState("docker.io/library/alpine:3")
  const [command, setCommand] = useState("")
  const [region, setRegion] = useState<string>()
  const [withServices, setWithServices] = useState(false)
  const regions = offers.value?.regions ?? []
  const chosen = region ?? regions[0]?.id ?? "local"
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Executions</h2>
        <Gated by={Executions.endpoints.create} what="Running one">
          <Button onClick={() => ask({ what: "run" })}>Run a command</Button>
        </Gated>
      </div>
      {offers.value?.ready === false && (
        <p className="mb-2 text-wait">
          No machine that runs containers is ready: what is asked for now waits.
        </p>
      )}
      <Panel>
        <Answered of={answer} what="executions">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Executions"
              empty={
                <>
                  <p>Nothing has run yet. Run a command here, or with</p>
                  <Code>{`svc executions run ${project} alpine:3 -- echo hello`}</Code>
                </>
              }
              columns={[
                {
                  head: "Asked for",
                  cell: ({ id, createdAt }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="text-accent hover:underline">
                      <At at={createdAt} />
                    </Link>
                  )
                },
                {
                  head: "Command",
                  look: "code",
                  cell: ({ image, command }) => `${image} ${command.join(" ")}`
                },
                {
                  head: "State",
                  cell: ({ status, exitCode }) => (
                    <span
                      className={status === "failed" ? "text-bad" : status === "succeeded" ? "text-ok" : ""}
                    >
                      {status}
                      {exitCode !== null && exitCode !== 0 && `, ${exitCode}`}
                    </span>
                  )
                },
                {
                  head: "Took",
                  look: "number",
                  cell: ({ startedAt, finishedAt }) =>
                    startedAt === null || finishedAt === null
                      ? "–"
                      : duration(Date.parse(finishedAt) - Date.parse(startedAt))
                },
                {
                  ...menuColumn,
                  cell: ({ id, command, finishedAt }) => (
                    <RowMenu
                      label={command.join(" ")}
                      actions={
                        finishedAt !== null
                          ? []
                          : [
                              {
                                name: "End it",
                                by: Executions.endpoints.cancel,
                                danger: true,
                                run: () => ask({ what: "cancel", id })
                              }
                            ]
                      }
                    />
                  )
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      <Confirm
        {...dialog}
        open={asked?.what === "run"}
        title="Run a command"
        says="A container of the image runs it once, for at most an hour. Each line below is one argument: no shell reads it."
        action="Run it"
        ready={image !== "" && command.trim() !== ""}
        confirmed={() => {
          const [program = "", ...rest] = command.split("\n").filter((line) => line !== "")
          run(
            (headers) =>
              executions.create({
                params,
                headers,
                payload: {
                  image,
                  command: [program, ...rest],
                  region: chosen,
                  ...(withServices ? { services: true } : {})
                }
              }),
            ({ id }) => go(pathTo(org.slug, "resources", id))
          )
        }}
      >
        <Field
          label="Image"
          value={image}
          changed={setImage}
          maxLength={512}
          autoComplete="off"
          spellCheck={false}
        />
        <label className="block">
          <span className="font-medium">Program and arguments, one a line</span>
          <textarea
            rows={3}
            value={command}
            onChange={(event) => setCommand(event.target.value)}
            spellCheck={false}
            className="mt-1 w-full rounded-md border border-faint/60 bg-bg px-2.5 py-1.5 font-mono text-[12.5px] text-ink"
          />
        </label>
        {regions.length > 1 && (
          <Choice
            label="Region"
            value={chosen}
            of={regions.map(({ id, name }) => [id, name] as const)}
            changed={setRegion}
          />
        )}
        <Tick
          label="With the variables of production, and a way to its servers"
          checked={withServices}
          changed={setWithServices}
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "cancel"}
        look="danger"
        title="End the execution"
        says="Its container is told to end, and killed when it does not. What it has done until then stays done."
        action="End it"
        confirmed={() =>
          asked?.what === "cancel" &&
          run((headers) => executions.cancel({ params: { ...params, executionId: asked.id }, headers }))
        }
      />
    </>
  )
}
