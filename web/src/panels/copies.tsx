/** Branching a database and restoring it, which ask first: what it costs, what becomes of what is there. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { useState } from "react"
import { databaseSizes, defaultDatabaseSku, localRegion } from "#schemas/catalog.ts"
import { client } from "../api/client.ts"
import { backups, databaseBranches } from "../api/databases.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Link } from "../parts/link.tsx"
import { Problem } from "../parts/problem.tsx"
import { pathTo } from "../router.ts"
import type { ServiceProps } from "./service.tsx"

/** What a branch or a restore begins with. */
export type From =
  | { readonly kind: "moment"; readonly at: string }
  | { readonly kind: "backup"; readonly id: string; readonly at: string }
  | { readonly kind: "now" }

type Asked = { readonly what: "branch" | "restore"; readonly from: From }

/** What of a specification a copy has in common with it. */
const SpecOfSource = Schema.Struct({ sku: Schema.String, region: Schema.String })
const daysOf = (text: string): number | undefined => {
  const days = Number(text)
  return Number.isInteger(days) && days >= 1 && days <= 3_650 ? days : undefined
}
const sizes = Object.entries(databaseSizes).map(
  ([sku, { memoryMb, cpus }]) => [sku, `${sku}: ${memoryMb} MiB, ${cpus} processors`] as const
)

/** `dialogs` and `made`, which tells of the last copy and leads to it, stand where the caller puts them. */
export const useCopies = ({ resource, project, done }: ServiceProps & { readonly done: () => void }) => {
  const { org } = useCaller()
  const { all } = useLive()
  const { asked, ask: open, run, dialog, failure } = useDecision<Asked>(done)
  const [name, setName] = useState("")
  const [environment, setEnvironment] = useState(resource.environment ?? "production")
  const [days, setDays] = useState("7")
  const [sku, setSku] = useState<string>()
  const [made, setMade] = useState<{ readonly id: string; readonly name: string }>()
  const source = useAnswer(`source ${resource.uid}`, () =>
    client.resources.get({ params: { orgId: org.slug, uid: resource.uid } })
  )
  const { sku: usual, region } = Option.getOrElse(
    Schema.decodeUnknownOption(SpecOfSource)(source.value?.body.spec),
    () => ({ sku: defaultDatabaseSku, region: localRegion })
  )
  const environments = all
    .filter((one) => one.kind === "Environment" && one.project === project)
    .map((one) => one.name)
  const params = { orgId: org.slug, projectId: project, databaseId: resource.uid }
  const ask = (next: Asked) => {
    setName(next.what === "branch" ? "copy" : "")
    open(next)
  }
  const from = asked?.from
  const when =
    from === undefined || from.kind === "now"
      ? "as it is now"
      : `as it was ${new Date(from.at).toLocaleString()}`
  const dialogs = (
    <>
      <Confirm
        {...dialog}
        open={asked?.what === "branch"}
        title={`Branch ${resource.name} ${when}`}
        says="A full copy on a server of its own, with an address and a password of its own. It takes as much room and memory as a database of its size until it expires; what it is a copy of is not touched."
        action="Make the branch"
        ready={name !== "" && daysOf(days) !== undefined}
        confirmed={() => {
          if (from === undefined) return
          run(
            (headers) =>
              databaseBranches.create({
                params,
                headers,
                payload: {
                  name,
                  environment,
                  region,
                  sku: sku ?? usual,
                  expiresInDays: daysOf(days) ?? 7,
                  source:
                    from.kind === "moment"
                      ? { kind: "point_in_time", pointInTime: from.at }
                      : from.kind === "backup"
                        ? { kind: "backup", backupId: from.id }
                        : { kind: "current" }
                }
              }),
            setMade
          )
        }}
      >
        <Field label="Name" value={name} changed={setName} maxLength={63} required autoComplete="off" />
        <Choice
          label="Environment"
          value={environment}
          of={[...new Set([environment, ...environments])].map((one) => [one, one] as const)}
          changed={setEnvironment}
          hint="Apps of that environment get to know how to connect."
        />
        <Choice label="Size" value={sku ?? usual} of={knownSizes(usual)} changed={setSku} />
        <Field
          label="Days until it is deleted"
          value={days}
          changed={setDays}
          inputMode="numeric"
          hint="1 to 3,650."
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "restore"}
        look="danger"
        title={`Restore ${resource.name} ${when}`}
        says="A copy of that moment is made beside the database, and then takes its place: address and password stay, connections break for the time of a restart. What the database holds until then is kept as a branch for seven days and can be promoted as well."
        action="Restore it"
        ready={name === resource.name}
        confirmed={() => {
          if (from === undefined || from.kind === "now") return
          run(
            (headers) =>
              backups.restore({
                params,
                headers,
                payload: from.kind === "moment" ? { pointInTime: from.at } : { backupId: from.id }
              }),
            setMade
          )
        }}
      >
        <Field
          label="Name of the database, to confirm"
          value={name}
          changed={setName}
          hint={`Type ${resource.name}.`}
          autoComplete="off"
        />
      </Confirm>
    </>
  )
  return {
    ask,
    dialogs,
    made: (
      <>
        {failure !== undefined && <Problem failure={failure} />}
        {made !== undefined && (
          <p role="status" className="mt-3">
            <Link to={pathTo(org.slug, "resources", made.id)} className="text-accent underline">
              {made.name}
            </Link>{" "}
            is being made.
          </p>
        )}
      </>
    )
  }
}

const knownSizes = (usual: string): ReadonlyArray<readonly [string, string]> =>
  sizes.some(([sku]) => sku === usual) ? sizes : [...sizes, [usual, usual] as const]
