/** The backups of a database: where they are, whether they were proven, one more now, and one to go back to. */
import { Backups as Operations } from "#src/backups/api.ts"
import { DatabaseBranches } from "#src/branches/api.ts"
import { idempotent } from "../api/call.ts"
import { backups } from "../api/databases.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { bytes } from "../parts/amounts.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"
import { useCopies } from "./copies.tsx"
import type { ServiceProps } from "./service.tsx"

const whys: Readonly<Record<string, string>> = {
  schedule: "by the clock",
  request: "asked for",
  first: "the first one",
  gap: "the log had a hole",
  timeline: "the server changed",
  destination: "a new destination"
}

export const Backups = ({
  resource,
  project,
  version,
  changed
}: ServiceProps & { readonly version: string; readonly changed: () => void }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, databaseId: resource.uid }
  const answer = useAnswer(`backups ${resource.uid}`, () => backups.list({ params }), version)
  const { acting, failure, act } = useAct()
  const { ask, made, dialogs } = useCopies({ resource, project, done: changed })
  const backUp = (drill: boolean) =>
    void act(() => backups.create({ params, headers: idempotent(), payload: { drill } })).then(
      (backup) => backup !== undefined && answer.again()
    )
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Backups</h2>
        <Gated by={Operations.endpoints.create} what="Backing up">
          <span className="flex flex-wrap gap-2">
            <Button busy={acting} onClick={() => backUp(false)}>
              Back up now
            </Button>
            <Button
              busy={acting}
              onClick={() => backUp(true)}
              title="Backs up, and restores it into a server of its own, which goes away afterwards."
            >
              Back up and prove it
            </Button>
          </span>
        </Gated>
      </div>
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Answered of={answer} what="backups">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Backups"
              empty="There is none yet: the first one is made as soon as the database is ready."
              columns={[
                { head: "Made", cell: ({ createdAt }) => <At at={createdAt} /> },
                {
                  head: "State",
                  look: "written",
                  cell: ({ status, progressPercent, step, error }) => (
                    <>
                      <span className={status === "failed" ? "text-bad" : ""}>
                        {status === "running" ? `${progressPercent} %, ${step ?? "begins"}` : status}
                      </span>{" "}
                      <span className="text-soft">{error}</span>
                    </>
                  )
                },
                { head: "Why", cell: ({ reason }) => whys[reason] ?? reason },
                { head: "Size", look: "number", cell: ({ sizeBytes }) => bytes(sizeBytes) },
                {
                  head: "Stored",
                  look: "number",
                  cell: ({ storedBytes }) => (storedBytes === null ? "–" : bytes(storedBytes))
                },
                {
                  head: "Where",
                  cell: ({ locations }) => {
                    const away = locations.filter(({ kind, complete }) => kind === "destination" && complete)
                    return locations.some(({ kind, complete }) => kind === "local" && complete)
                      ? `here${away.length > 0 ? ` and ${away.length} more` : ""}`
                      : away.length > 0
                        ? `${away.length} ${away.length === 1 ? "destination" : "destinations"}`
                        : "–"
                  }
                },
                {
                  head: "Proven",
                  cell: ({ lastProvenAt, drill }) =>
                    drill !== null && (drill.status === "queued" || drill.status === "running") ? (
                      "is being proven"
                    ) : lastProvenAt === null ? (
                      <span className={drill?.status === "failed" ? "text-bad" : "text-faint"}>
                        {drill?.error ?? "not yet"}
                      </span>
                    ) : (
                      <>
                        <Ago at={lastProvenAt} /> ago
                      </>
                    )
                },
                {
                  ...menuColumn,
                  cell: ({ id, status, createdAt: at }) => (
                    <RowMenu
                      label={`backup of ${at}`}
                      actions={
                        status !== "succeeded"
                          ? []
                          : [
                              {
                                name: "Branch from it",
                                by: DatabaseBranches.endpoints.create,
                                run: () => ask({ what: "branch", from: { kind: "backup", id, at } })
                              },
                              {
                                name: "Restore it",
                                by: Operations.endpoints.restore,
                                danger: true,
                                run: () => ask({ what: "restore", from: { kind: "backup", id, at } })
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
      {made}
      {dialogs}
    </>
  )
}
