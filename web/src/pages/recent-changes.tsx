/** What people and programs did in the last day, as the audit log has it: one line for each request. */
import type { AuditRecord } from "#src/organizations/api/audit.ts"
import { client } from "../api/client.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Empty, Panel } from "../parts/panel.tsx"
import { Principal, useNames } from "../parts/principal.tsx"
import { At } from "../parts/time.tsx"

type Entry = typeof AuditRecord.Type

const mostShown = 12

/** A request that wrote several things has a record of each. */
const requestsOf = (items: ReadonlyArray<Entry>) =>
  [...Map.groupBy(items, ({ requestId }) => requestId).values()].flatMap((records) => {
    const [first] = records
    return first === undefined ? [] : [{ ...first, count: records.length }]
  })

export const RecentChanges = () => {
  const { org } = useCaller()
  const names = useNames()
  const answer = useAnswer(`changes ${org.slug}`, () =>
    client.audit.list({ params: { orgId: org.slug }, query: { limit: 100 } })
  )
  const since = Date.now() - 86_400_000
  return (
    <>
      <h2>In the last day</h2>
      <Panel>
        <Answered of={answer} what="what happened">
          {({ items }) => {
            const recent = requestsOf(items.filter(({ at }) => Date.parse(at) > since)).slice(0, mostShown)
            if (recent.length === 0) return <Empty>Nobody changed anything.</Empty>
            return (
              <ul className="py-1.5">
                {recent.map(({ id, at, operation, principal, outcome, count }) => (
                  <li key={id} className="flex flex-wrap gap-x-3 px-3.5 py-1">
                    <span className="w-24 text-faint">
                      <At at={at} />
                    </span>
                    <span className="md:w-80">
                      <code className="font-mono text-[12.5px]">{operation}</code>
                      {count > 1 && <span className="text-faint"> on {count} resources</span>}
                    </span>
                    <span className="text-soft wrap-anywhere">
                      by <Principal of={principal} names={names} />
                    </span>
                    {outcome >= 400 && <span className="text-bad">refused ({outcome})</span>}
                  </li>
                ))}
              </ul>
            )
          }}
        </Answered>
      </Panel>
    </>
  )
}
