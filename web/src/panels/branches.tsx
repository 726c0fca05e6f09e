/** The branches of a database, and a new one of it as it is now. */
import { type BranchView, DatabaseBranches } from "#src/branches/api.ts"
import { databaseBranches } from "../api/databases.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { At, In } from "../parts/time.tsx"
import { pathTo } from "../router.ts"
import { useCopies } from "./copies.tsx"
import type { ServiceProps } from "./service.tsx"

/** What it is a copy of. */
export const Origin = ({ source }: { readonly source: BranchView["source"] }) =>
  source.pointInTime !== null ? (
    <At at={source.pointInTime} />
  ) : source.kind === "backup" ? (
    "a backup"
  ) : source.kind === "replaced" ? (
    "what a promotion replaced"
  ) : (
    "as it was then"
  )

export const Branches = ({ resource, project, version }: ServiceProps & { readonly version: string }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, databaseId: resource.uid }
  const answer = useAnswer(`branches ${resource.uid}`, () => databaseBranches.list({ params }), version)
  const { ask, made, dialogs } = useCopies({ resource, project, done: answer.again })
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Branches</h2>
        <Gated by={DatabaseBranches.endpoints.create} what="Branching">
          <Button onClick={() => ask({ what: "branch", from: { kind: "now" } })}>Branch as it is now</Button>
        </Gated>
      </div>
      <Panel>
        <Answered of={answer} what="branches">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Branches"
              empty={
                <>
                  <p>There is none. Pick a moment above, or make one of the present state with</p>
                  <Code>{`svc db branch create ${project} copy --into staging`}</Code>
                </>
              }
              columns={[
                {
                  head: "Branch",
                  cell: ({ id, name }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="font-medium hover:underline">
                      {name}
                    </Link>
                  )
                },
                { head: "Environment", cell: ({ environment }) => environment },
                { head: "Of", cell: ({ source }) => <Origin source={source} /> },
                {
                  head: "State",
                  cell: ({ status, progressPercent }) =>
                    status === "hydrating" ? (
                      <span className="tabular-nums">copies, {progressPercent} %</span>
                    ) : (
                      <span className={status === "failed" ? "text-bad" : ""}>{status}</span>
                    )
                },
                {
                  head: "Expires",
                  cell: ({ expiresAt }) => (expiresAt === null ? "never" : <In at={expiresAt} />)
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      {made}
      {dialogs}
    </>
  )
}
