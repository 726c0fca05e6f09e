/** A branch of a database: how far its copy is, how to connect, its expiry, and its promotion. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { useState } from "react"
import { DatabaseBranches } from "#src/branches/api.ts"
import { idempotent } from "../api/call.ts"
import { client } from "../api/client.ts"
import { databaseBranches } from "../api/databases.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { In } from "../parts/time.tsx"
import { pathTo } from "../router.ts"
import { Origin } from "./branches.tsx"
import { Credentials } from "./credentials.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

/** Its database is in its status, or for one of a manifest found by its place. */
const Spec = Schema.Struct({ sourceEnvironment: Schema.String, sourceDatabase: Schema.String })
const Status = Schema.Struct({ sourceDatabaseId: Schema.NullOr(Schema.String) })

export const BranchPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const { all } = useLive()
  const detail = useAnswer(
    `branch's specification ${resource.uid}`,
    () => client.resources.get({ params: { orgId: org.slug, uid: resource.uid } }),
    resource.revision
  )
  const body = detail.value?.body
  const status = Option.getOrUndefined(Schema.decodeUnknownOption(Status)(body?.status))
  const spec = Option.getOrUndefined(Schema.decodeUnknownOption(Spec)(body?.spec))
  const source =
    status?.sourceDatabaseId ??
    all.find(
      (one) =>
        one.kind === "Database" &&
        one.project === project &&
        one.environment === spec?.sourceEnvironment &&
        one.name === spec?.sourceDatabase
    )?.uid
  if (body === undefined || source === undefined) return null
  return <Known resource={resource} project={project} source={source} />
}

const Known = ({ resource, project, source }: ServiceProps & { readonly source: string }) => {
  const { org } = useCaller()
  const { byUid } = useLive()
  const params = { orgId: org.slug, projectId: project, databaseId: source, branchId: resource.uid }
  const answer = useAnswer(
    `branch ${resource.uid}`,
    () => databaseBranches.get({ params }),
    `${useEvery(5_000)} ${resource.revision}`
  )
  const { asked, ask, run, dialog } = useDecision<"promote" | "expiry">(answer.again)
  // A password that was shown stays while the branch is changed.
  const [shown, setShown] = useState(false)
  const [text, setText] = useState("")
  const days = Number(text)
  const database = byUid.get(source)
  return (
    <Answered of={answer} what="the branch">
      {({ body: branch }) => (
        <>
          <Tiles>
            <Tile value={branch.status} says="state" bad={branch.status === "failed"} />
            <Tile value={`${branch.progressPercent} %`} says="of its copy is there" />
            <Tile value={branch.expiresAt === null ? "never" : <In at={branch.expiresAt} />} says="expires" />
            <Tile value={branch.sku} says="size" />
          </Tiles>
          <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
            <p>
              A copy of{" "}
              {database === undefined ? (
                "a database that is gone"
              ) : (
                <Link to={pathTo(org.slug, "resources", source)} className="text-accent underline">
                  {database.name}
                </Link>
              )}
              , <Origin source={branch.source} />.
            </p>
            <span className="flex flex-wrap gap-2">
              <Gated by={DatabaseBranches.endpoints.update} what="Changing its expiry">
                <Button
                  onClick={() => {
                    setText("7")
                    ask("expiry")
                  }}
                >
                  Change expiry
                </Button>
              </Gated>
              {branch.status === "ready" && database !== undefined && (
                <Gated by={DatabaseBranches.endpoints.promote} what="Promoting it">
                  <Button
                    onClick={() => {
                      setText("")
                      ask("promote")
                    }}
                  >
                    Promote
                  </Button>
                </Gated>
              )}
            </span>
          </div>
          {branch.failure !== null && (
            <p className="mt-2 text-bad wrap-anywhere" dir="auto">
              {branch.failure.detail}
            </p>
          )}
          {(branch.connectionReady || shown) && (
            <Credentials
              by={DatabaseBranches.endpoints.rotatePassword}
              name={resource.name}
              facts={[
                ["Host", branch.host ?? "not yet"],
                ["Port", branch.port ?? "not yet"]
              ]}
              rotate={() => {
                setShown(true)
                return databaseBranches.rotatePassword({ params, headers: idempotent() })
              }}
            />
          )}
          <Confirm
            {...dialog}
            open={asked === "expiry"}
            title={`When ${resource.name} is deleted`}
            says="Its server and its data go then. The days count from now."
            action="Set it"
            ready={text === "" || (Number.isInteger(days) && days >= 1 && days <= 3_650)}
            confirmed={() =>
              run(() =>
                databaseBranches.update({
                  params,
                  headers: {},
                  payload: { expiresInDays: text === "" ? null : days }
                })
              )
            }
          >
            <Field
              label="Days"
              value={text}
              changed={setText}
              inputMode="numeric"
              hint="1 to 3,650. Empty: never."
            />
          </Confirm>
          <Confirm
            {...dialog}
            open={asked === "promote"}
            look="danger"
            title={`Promote ${resource.name}`}
            says={`Its data takes the place of what ${database?.name ?? "the database"} holds: connections break for the time of a restart, address and password stay. What the database holds now is kept as a branch for seven days.`}
            action="Promote it"
            ready={text === database?.name}
            confirmed={() => run((headers) => databaseBranches.promote({ params, headers }))}
          >
            <Field
              label="Name of the database, to confirm"
              value={text}
              changed={setText}
              hint={`Type ${database?.name ?? ""}.`}
              autoComplete="off"
            />
          </Confirm>
        </>
      )}
    </Answered>
  )
}
