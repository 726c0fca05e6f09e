/** What was sent to an endpoint, what came of it, and sending it again. */
import { useState } from "react"
import { Webhooks } from "#src/webhooks/api.ts"
import { idempotent } from "../api/call.ts"
import { organization } from "../api/organization.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useEvery } from "../panels/every.ts"
import { count } from "../parts/amounts.ts"
import { Choice } from "../parts/choice.tsx"
import { Pages } from "../parts/pages.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { At, In } from "../parts/time.tsx"

const { webhooks } = organization
const states = [
  ["", "all"],
  ["waiting", "waiting"],
  ["delivered", "delivered"],
  ["failed", "failed"]
] as const
type State = (typeof states)[number][0]
const colours = { waiting: "text-wait", delivered: "text-ok", failed: "text-bad" } as const

export const Deliveries = ({ id, url }: { readonly id: string; readonly url: string }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, webhookId: id }
  const [state, setState] = useState<State>("")
  const { failure, act } = useAct()
  const moment = useEvery(5_000)
  const [sent, setSent] = useState(0)
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-end justify-between gap-2">
        <h2 className="m-0! min-w-0 wrap-anywhere">Sent to {url}</h2>
        <Choice label="State" value={state} of={states} changed={setState} />
      </div>
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Pages
          place={`deliveries ${id} ${state}`}
          version={`${moment} ${sent}`}
          what="what was sent"
          ask={(cursor) =>
            webhooks.listDeliveries({
              params,
              query: {
                limit: 20,
                ...(state === "" ? {} : { state }),
                ...(cursor === undefined ? {} : { cursor })
              }
            })
          }
        >
          {(items) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              label="Deliveries"
              empty="Nothing was sent in the last 30 days. Send a test to see whether it arrives."
              columns={[
                { head: "Made", cell: ({ createdAt }) => <At at={createdAt} /> },
                {
                  head: "Event",
                  cell: ({ event }) => (
                    <details>
                      <summary className="font-mono text-[12.5px] whitespace-nowrap">{event.type}</summary>
                      <pre className="mt-1 max-w-96 overflow-x-auto font-mono text-[12px] text-soft">
                        {JSON.stringify(event.data, null, 2)}
                      </pre>
                    </details>
                  )
                },
                {
                  head: "State",
                  cell: ({ state, nextAttemptAt }) => (
                    <>
                      <span className={colours[state]}>{state}</span>
                      {state === "waiting" && nextAttemptAt !== null && (
                        <span className="text-soft">
                          , next try <In at={nextAttemptAt} />
                        </span>
                      )}
                    </>
                  )
                },
                {
                  head: "Answers",
                  look: "soft",
                  cell: ({ attempts }) =>
                    attempts
                      .map(
                        ({ statusCode, error, durationMs }) =>
                          `${statusCode ?? error ?? "none"} (${count(durationMs)} ms)`
                      )
                      .join(", ") || "–"
                },
                {
                  ...menuColumn,
                  cell: ({ id: deliveryId, event, state }) => (
                    <RowMenu
                      label={`${event.type} ${state}`}
                      actions={[
                        {
                          name: "Send again",
                          by: Webhooks.endpoints.redeliver,
                          run: () =>
                            void act(() =>
                              webhooks.redeliver({ params: { ...params, deliveryId }, headers: idempotent() })
                            ).then(() => setSent((before) => before + 1))
                        }
                      ]}
                    />
                  )
                }
              ]}
            />
          )}
        </Pages>
      </Panel>
    </>
  )
}
