/** Who did what, and who was refused what. */
import { AuditLog } from "#src/organizations/api/audit.ts"
import { client } from "../api/client.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Pages } from "../parts/pages.tsx"
import { Head, Panel } from "../parts/panel.tsx"
import { Principal, useNames } from "../parts/principal.tsx"
import { ResourceLink } from "../parts/resource-link.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"
import { go, pathTo, usePlace, withQuery } from "../router.ts"

const filters = [
  ["principal", "Who, such as user:…"],
  ["operation", "Operation, such as env.set"],
  ["resource", "Resource's id"]
] as const

/** What it was done to, by name where that is still there. */
const Subject = ({ of }: { readonly of: string | null }) => {
  const { byUid } = useLive()
  if (of === null) return null
  const resource = byUid.get(of)
  return resource === undefined ? (
    <code className="font-mono text-[12.5px] text-faint">{of}</code>
  ) : (
    <ResourceLink resource={resource} full />
  )
}

export const AuditPage = () => {
  const { org } = useCaller()
  const { query } = usePlace()
  const names = useNames()
  const chosen = Object.fromEntries(
    filters.flatMap(([name]) => (query.get(name) ? [[name, query.get(name) ?? ""]] : []))
  )
  return (
    <>
      <Head title="Audit log" />
      <Gated by={AuditLog.endpoints.list} what="Reading it">
        <form
          className="mb-3 flex flex-wrap gap-2"
          onSubmit={(event) => {
            event.preventDefault()
            const form = new FormData(event.currentTarget)
            const given = filters.map(([name]) => [name, String(form.get(name) ?? "").trim()] as const)
            go(withQuery(pathTo(org.slug, "audit"), Object.fromEntries(given)))
          }}
        >
          {filters.map(([name, says]) => (
            <input
              key={`${name} ${chosen[name] ?? ""}`}
              name={name}
              aria-label={says}
              placeholder={says}
              defaultValue={chosen[name] ?? ""}
              maxLength={128}
              className={`${inputClass} sm:max-w-56`}
            />
          ))}
          <button type="submit" className="sr-only">
            Filter
          </button>
        </form>
        <Panel>
          <Pages
            place={`audit ${org.slug} ${JSON.stringify(chosen)}`}
            what="the audit log"
            ask={(cursor) =>
              client.audit.list({
                params: { orgId: org.slug },
                query: { limit: 50, ...chosen, ...(cursor === undefined ? {} : { cursor }) }
              })
            }
          >
            {(items) => (
              <Table
                of={items}
                keyOf={({ id }) => id}
                empty="Nothing matches the filter."
                columns={[
                  { head: "When", cell: ({ at }) => <At at={at} /> },
                  { head: "Operation", look: "code", cell: ({ operation }) => operation },
                  {
                    head: "Who",
                    look: "written",
                    cell: ({ principal, agent }) => (
                      <>
                        <Principal of={principal} names={names} />
                        {agent !== null && (
                          <span className="text-faint">
                            {" "}
                            by <span dir="auto">{agent.clientName}</span>
                          </span>
                        )}
                      </>
                    )
                  },
                  {
                    head: "On",
                    look: "written",
                    cell: ({ resource }) => <Subject of={resource} />
                  },
                  {
                    head: "From",
                    cell: ({ address }) => <span className="text-soft">{address ?? "this server"}</span>
                  },
                  {
                    head: "Outcome",
                    cell: ({ outcome }) => (
                      <span className={outcome >= 400 ? "text-bad" : "text-soft"}>
                        {outcome >= 400 ? `refused, ${outcome}` : outcome}
                      </span>
                    )
                  }
                ]}
              />
            )}
          </Pages>
        </Panel>
      </Gated>
    </>
  )
}
