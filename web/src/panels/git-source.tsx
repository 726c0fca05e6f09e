/** A git source: what it saw in its repository, what that would change, what it did, and a look now. */
import { useState } from "react"
import { GitSources } from "#src/git-sources/api.ts"
import { gitSources } from "../api/git.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"
import type { OrganizationServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

export const GitSourcePanel = ({ resource }: OrganizationServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, sourceId: resource.uid }
  const answer = useAnswer(`source ${resource.uid}`, () => gitSources.get({ params }), resource.revision)
  const { asked, ask, run, acting, failure, dialog } = useDecision<"suspend" | "resume" | "delete">(
    answer.again
  )
  const [name, setName] = useState("")
  return (
    <Answered of={answer} what="the git source">
      {({ body: source }) => (
        <>
          <Tiles>
            <Tile value={source.status} says="state" bad={source.status === "failed"} />
            <Tile
              value={source.lookedAt === null ? "–" : <Ago at={source.lookedAt} />}
              says="since the last look"
            />
            <Tile value={source.commit?.slice(0, 12) ?? "–"} says={`at ${source.ref}`} />
            <Tile
              value={source.applied === null ? "never" : <Ago at={source.applied.at} />}
              says="since it was applied"
            />
          </Tiles>
          <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
            <code className="min-w-0 font-mono text-[12.5px] wrap-anywhere">
              {source.url} {source.path}
            </code>
            <span className="flex flex-wrap gap-2">
              <Gated by={GitSources.endpoints.sync} what="Looking now">
                <Button
                  busy={acting}
                  title="Looks at the repository, and applies what is there."
                  onClick={() => run((headers) => gitSources.sync({ params, headers }))}
                >
                  Sync now
                </Button>
              </Gated>
              <Gated by={GitSources.endpoints.update} what="Suspending">
                <Button onClick={() => ask(source.suspended ? "resume" : "suspend")}>
                  {source.suspended ? "Resume" : "Suspend"}
                </Button>
              </Gated>
              <Gated by={GitSources.endpoints.delete} what="Deleting">
                <Button
                  className="text-bad!"
                  onClick={() => {
                    setName("")
                    ask("delete")
                  }}
                >
                  Delete
                </Button>
              </Gated>
            </span>
          </div>
          {failure !== undefined && <Problem failure={failure} />}
          {source.fault !== null && (
            <div role="alert" className="mt-3 rounded-lg border border-bad/50 bg-del px-3.5 py-3">
              <p className="wrap-anywhere" dir="auto">
                {source.fault.message}
              </p>
              {source.fault.errors.length > 0 && (
                <ul className="mt-2 list-disc space-y-1 pl-5">
                  {source.fault.errors.slice(0, 50).map(({ pointer, message, line }) => (
                    <li key={`${pointer} ${message}`} className="wrap-anywhere">
                      {line !== undefined && <span className="text-soft">line {line}: </span>}
                      <code className="font-mono text-[12.5px]">{pointer}</code>{" "}
                      <span dir="auto">{message}</span>
                    </li>
                  ))}
                </ul>
              )}
            </div>
          )}
          {source.planned !== null && (
            <>
              <h2>
                Planned from {source.planned.commit.slice(0, 12)}, <At at={source.planned.createdAt} />
              </h2>
              <Panel>
                <Table
                  of={source.planned.changes}
                  keyOf={({ address }) => address}
                  empty="Nothing was to change."
                  columns={[
                    { head: "Resource", look: "code", cell: ({ address }) => address },
                    {
                      head: "Change",
                      cell: ({ action, risk }) => (
                        <span className={risk === "destructive" || risk === "dangerous" ? "text-bad" : ""}>
                          {action}
                        </span>
                      )
                    },
                    { head: "Takes", cell: ({ role }) => `the role ${role}` },
                    { head: "Fields", look: "code", cell: ({ fields }) => fields.join(", ") }
                  ]}
                />
              </Panel>
            </>
          )}
          {source.drift !== null && source.drift.addresses.length > 0 && (
            <>
              <h2>
                Changed by others, <At at={source.drift.at} />
              </h2>
              <Panel>
                <ul className="px-3.5 py-2 font-mono text-[12.5px]">
                  {source.drift.addresses.map((address) => (
                    <li key={address} className="wrap-anywhere">
                      {address}
                    </li>
                  ))}
                </ul>
              </Panel>
            </>
          )}
          <Confirm
            {...dialog}
            open={asked === "suspend" || asked === "resume"}
            title={`${asked === "resume" ? "Resume" : "Suspend"} ${resource.name}`}
            says={
              asked === "resume"
                ? "The repository is looked at again, and what its manifest says is applied with your rights from now on."
                : "The repository is not looked at and nothing is applied from it. What is there stays."
            }
            action={asked === "resume" ? "Resume it" : "Suspend it"}
            confirmed={() =>
              run(() =>
                gitSources.update({ params, headers: {}, payload: { suspended: asked === "suspend" } })
              )
            }
          />
          <Confirm
            {...dialog}
            open={asked === "delete"}
            look="danger"
            title={`Delete ${resource.name}`}
            says="What it applied stays, and is changed by hand from then on."
            action="Delete it"
            ready={name === resource.name}
            confirmed={() => run(() => gitSources.delete({ params, headers: {} }))}
          >
            <Field
              label="Name, to confirm"
              value={name}
              changed={setName}
              hint={`Type ${resource.name}.`}
              autoComplete="off"
            />
          </Confirm>
        </>
      )}
    </Answered>
  )
}
