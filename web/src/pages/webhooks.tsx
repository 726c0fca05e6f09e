/** Endpoints that are told of what happens here: which there are, and what was sent to each. */
import { useState } from "react"
import { Webhooks, type WebhookView } from "#src/webhooks/api.ts"
import { eventTypes } from "#src/webhooks/event-types.ts"
import { organization } from "../api/organization.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Tick } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Code, Head, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Secret } from "../parts/secret.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"
import { go, pathTo, usePlace, withQuery } from "../router.ts"
import { Deliveries } from "./deliveries.tsx"

type Webhook = typeof WebhookView.Type
type EventType = Webhook["events"][number]
const { webhooks } = organization

type Asked =
  | { readonly what: "create" }
  | { readonly what: "change" | "rotate" | "switch" | "delete"; readonly webhook: Webhook }

export const WebhooksPage = () => (
  <Gated by={Webhooks.endpoints.list} what="Seeing webhooks">
    <Listed />
  </Gated>
)

const Listed = () => {
  const { org } = useCaller()
  const { query } = usePlace()
  const params = { orgId: org.slug }
  const answer = useAnswer(`webhooks ${org.slug}`, () => webhooks.list({ params }))
  const { asked, ask, run, failure, dialog } = useDecision<Asked>(answer.again)
  const [url, setUrl] = useState("")
  const [events, setEvents] = useState<ReadonlyArray<EventType>>(eventTypes)
  const [secret, setSecret] = useState<{ readonly of: string; readonly value: string }>()
  const one = asked !== undefined && asked.what !== "create" ? asked.webhook : undefined
  const of = { ...params, webhookId: one?.id ?? "" }
  const chosen = answer.value?.find(({ id }) => id === query.get("webhook"))
  const fill = (from?: Webhook) => {
    setUrl(from?.url ?? "")
    setEvents(from?.events ?? eventTypes)
  }
  const fields = (
    <>
      <Field
        label="Address"
        type="url"
        value={url}
        changed={setUrl}
        placeholder="https://"
        maxLength={2_000}
      />
      <fieldset className="space-y-1">
        <legend className="font-medium">Told of</legend>
        {eventTypes.map((type) => (
          <Tick
            key={type}
            label={type}
            checked={events.includes(type)}
            changed={(checked) =>
              setEvents(eventTypes.filter((each) => (each === type ? checked : events.includes(each))))
            }
          />
        ))}
      </fieldset>
    </>
  )
  const ready = url.startsWith("https://") && events.length > 0
  return (
    <>
      <Head title="Webhooks">
        <Gated by={Webhooks.endpoints.create} what="Creating one">
          <Button
            look="main"
            onClick={() => {
              fill()
              ask({ what: "create" })
            }}
          >
            Add an endpoint
          </Button>
        </Gated>
      </Head>
      {failure !== undefined && <Problem failure={failure} />}
      {secret !== undefined && (
        <div className="mb-3">
          <Secret
            value={secret.value}
            what={`The signing secret of ${secret.of}`}
            hide={() => setSecret(undefined)}
          />
        </div>
      )}
      <Panel>
        <Answered of={answer} what="webhooks">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Webhooks"
              empty={
                <>
                  <p>Nobody is told of anything. Add an endpoint here, or with</p>
                  <Code>svc webhooks create https://example.com/hooks --event alert.firing</Code>
                </>
              }
              columns={[
                {
                  head: "Address",
                  look: "written",
                  cell: ({ id, url }) => (
                    <Link
                      to={withQuery(pathTo(org.slug, "webhooks"), { webhook: id })}
                      className="font-medium hover:underline"
                      aria-current={id === chosen?.id ? "true" : undefined}
                    >
                      {url}
                    </Link>
                  )
                },
                {
                  head: "Told of",
                  look: "soft",
                  cell: ({ events }) =>
                    events.length === eventTypes.length ? "everything" : events.join(", ")
                },
                { head: "State", look: "written", cell: (webhook) => <State of={webhook} /> },
                {
                  ...menuColumn,
                  cell: (webhook) => (
                    <RowMenu
                      label={webhook.url}
                      actions={[
                        {
                          name: "Send a test",
                          by: Webhooks.endpoints.test,
                          run: () =>
                            run(
                              (headers) =>
                                webhooks.test({
                                  params: { ...params, webhookId: webhook.id },
                                  headers
                                }),
                              () => go(withQuery(pathTo(org.slug, "webhooks"), { webhook: webhook.id }))
                            )
                        },
                        {
                          name: "Change",
                          by: Webhooks.endpoints.update,
                          run: () => {
                            fill(webhook)
                            ask({ what: "change", webhook })
                          }
                        },
                        {
                          name: webhook.enabled ? "Switch off" : "Switch on",
                          by: Webhooks.endpoints.update,
                          run: () => ask({ what: "switch", webhook })
                        },
                        {
                          name: "New secret",
                          by: Webhooks.endpoints.rotateSecret,
                          run: () => ask({ what: "rotate", webhook })
                        },
                        {
                          name: "Delete",
                          by: Webhooks.endpoints.delete,
                          danger: true,
                          run: () => ask({ what: "delete", webhook })
                        }
                      ]}
                    />
                  )
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      {chosen !== undefined && <Deliveries key={chosen.id} id={chosen.id} url={chosen.url} />}
      <Confirm
        {...dialog}
        open={asked?.what === "create"}
        title="Add an endpoint"
        says="What happens is sent there by signed requests. The secret that signs them is shown once."
        action="Add it"
        ready={ready}
        confirmed={() =>
          run(
            (headers) => webhooks.create({ params, headers, payload: { url, events } }),
            (made) => setSecret({ of: made.url, value: made.secret })
          )
        }
      >
        {fields}
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "change"}
        title="Change the endpoint"
        says="What waits to be sent goes to the new address."
        action="Change it"
        ready={ready}
        confirmed={() => run(() => webhooks.update({ params: of, payload: { url, events } }))}
      >
        {fields}
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "switch"}
        title={`Switch ${one?.enabled === true ? "off" : "on"} ${one?.url ?? ""}`}
        says={
          one?.enabled === true
            ? "What waits to be sent there is given up, and nothing more is sent."
            : "It is told of what happens from now on."
        }
        action={one?.enabled === true ? "Switch it off" : "Switch it on"}
        confirmed={() =>
          run(() => webhooks.update({ params: of, payload: { enabled: one?.enabled !== true } }))
        }
      />
      <Confirm
        {...dialog}
        open={asked?.what === "rotate"}
        title="New signing secret"
        says="It is shown once. The secret before it signs as well for a day, so that the receiver can change over."
        action="Make a new secret"
        confirmed={() =>
          run(
            (headers) => webhooks.rotateSecret({ params: of, headers, payload: {} }),
            (made) => setSecret({ of: one?.url ?? "", value: made.secret })
          )
        }
      />
      <Confirm
        {...dialog}
        open={asked?.what === "delete"}
        look="danger"
        title={`Delete ${one?.url ?? ""}`}
        says="Nothing is sent there any more, and the list of what was sent goes as well."
        action="Delete it"
        confirmed={() => run(() => webhooks.delete({ params: of }))}
      />
    </>
  )
}

const State = ({ of: { enabled, failingSince, disabledAt, disabledReason } }: { readonly of: Webhook }) =>
  !enabled ? (
    <span className="text-soft">
      off{disabledAt !== null && <> since {<At at={disabledAt} />}</>} {disabledReason}
    </span>
  ) : failingSince !== null ? (
    <span className="text-bad">
      nothing has arrived for <Ago at={failingSince} />
    </span>
  ) : (
    "on"
  )
