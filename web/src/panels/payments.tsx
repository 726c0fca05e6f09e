/** Customer payments: the connected Stripe account, what it sells, who subscribes, and the events that failed. */
import { useState } from "react"
import { paymentScopes } from "#schemas/customer-payments.ts"
import { CustomerPayments } from "#src/payments/api.ts"
import { customerPayments } from "../api/money.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Pages } from "../parts/pages.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

interface Of {
  readonly project: string
  readonly environment: string
}

export const PaymentsPanel = ({ resource, project }: ServiceProps) => (
  <Payments project={project} environment={resource.environment ?? "production"} />
)

/** Of one environment of the project after another. */
export const ProjectPayments = ({ project }: { readonly project: string }) => {
  const { all } = useLive()
  const [environment, setEnvironment] = useState("production")
  const environments = all
    .filter((one) => one.kind === "Environment" && one.project === project)
    .map(({ name }) => [name, name] as const)
  return (
    <>
      <div className="mt-6 flex">
        <Choice
          label="Environment"
          value={environment}
          of={environments.length === 0 ? [["production", "production"] as const] : environments}
          changed={setEnvironment}
        />
      </div>
      <Payments key={environment} project={project} environment={environment} />
    </>
  )
}

const states = { not_configured: "not connected", ready: "connected", disabled: "disabled" } as const

const Payments = ({ project, environment }: Of) => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug, projectId: project }
  const query = { environment }
  const resource = all.find(
    (one) => one.kind === "CustomerPayments" && one.project === project && one.environment === environment
  )
  const answer = useAnswer(
    `payments ${org.slug} ${project} ${environment}`,
    () => customerPayments.getConfig({ params, query }),
    resource?.revision
  )
  const { asked, ask, run, dialog } = useDecision<"connect" | "disconnect">(answer.again)
  /** Another key is for what the one before was for. */
  const [scopes, setScopes] = useState<ReadonlyArray<(typeof paymentScopes)[number]>>(paymentScopes)
  const [key, setKey] = useState("")
  const [secret, setSecret] = useState("")
  const [origins, setOrigins] = useState("")
  const [typed, setTyped] = useState("")
  return (
    <>
      <h2>Stripe account</h2>
      <Answered of={answer} what="the account">
        {(config) => (
          <>
            <Tiles>
              <Tile value={states[config.status]} says="account" bad={config.status === "disabled"} />
              <Tile
                value={config.credentialHint === null ? "–" : `…${config.credentialHint}`}
                says="end of the key"
              />
              <Tile
                value={config.credentialScopes.length}
                says={`of ${paymentScopes.length} scopes allowed`}
              />
              <Tile value={config.webhookSecretConfigured ? "yes" : "no"} says="events are verified" />
            </Tiles>
            {config.statusDetail !== null && (
              <p className="mt-2 text-wait wrap-anywhere" dir="auto">
                {config.statusDetail}
              </p>
            )}
            <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
              <p className="min-w-0 text-soft wrap-anywhere">
                {config.webhookUrl !== null && (
                  <>
                    Stripe sends events to{" "}
                    <code className="font-mono text-[12.5px]">{config.webhookUrl}</code>
                  </>
                )}
              </p>
              <span className="flex flex-wrap gap-2">
                <Gated by={CustomerPayments.endpoints.connect} what="Connecting">
                  <Button
                    onClick={() => {
                      setKey("")
                      setSecret("")
                      setOrigins(config.allowedRedirectOrigins.join(" "))
                      setScopes(config.credentialConfigured ? config.credentialScopes : paymentScopes)
                      ask("connect")
                    }}
                  >
                    {config.credentialConfigured ? "Replace the key" : "Connect an account"}
                  </Button>
                </Gated>
                {config.credentialConfigured && (
                  <Gated by={CustomerPayments.endpoints.disconnect} what="Disconnecting">
                    <Button
                      className="text-bad!"
                      onClick={() => {
                        setTyped("")
                        ask("disconnect")
                      }}
                    >
                      Disconnect
                    </Button>
                  </Gated>
                )}
              </span>
            </div>
            {config.credentialConfigured ? (
              <>
                <Products project={project} environment={environment} />
                <Subscriptions project={project} environment={environment} />
                <Events project={project} environment={environment} />
              </>
            ) : (
              <div className="mt-3 rounded-lg border border-line bg-panel px-3.5 py-6 text-soft">
                <p>No account is connected. Its owner connects it here, or with</p>
                <Code>{`printf '%s\\n%s' "$KEY" "$WEBHOOK_SECRET" | svc payments connect ${project}`}</Code>
              </div>
            )}
          </>
        )}
      </Answered>
      <Confirm
        {...dialog}
        open={asked === "connect"}
        title="Connect a Stripe account"
        says="The app may sell through it within the scopes of the key, and those that were allowed before. Key and secret are stored encrypted and never shown."
        action="Connect it"
        ready={key !== "" && secret !== ""}
        confirmed={() =>
          run(() =>
            customerPayments.connect({
              params,
              query,
              payload: {
                secretKey: key,
                webhookSecret: secret,
                credentialScopes: scopes,
                allowedRedirectOrigins: origins.split(/\s+/).filter((origin) => origin !== "")
              }
            })
          )
        }
      >
        <Field
          label="Restricted key"
          type="password"
          value={key}
          changed={setKey}
          autoComplete="new-password"
          hint="rk_test_… or rk_live_…"
        />
        <Field
          label="Signing secret of the webhook endpoint"
          type="password"
          value={secret}
          changed={setSecret}
          autoComplete="new-password"
          hint="whsec_…"
        />
        <Field
          label="Where customers may be sent back to"
          value={origins}
          changed={setOrigins}
          hint="Https origins, with spaces between them."
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked === "disconnect"}
        look="danger"
        title="Disconnect the account"
        says="The app can sell nothing any more, and what is stored here of products, customers and events is deleted. What is at Stripe stays, and subscriptions go on there."
        action="Disconnect it"
        ready={typed === project}
        confirmed={() => run(() => customerPayments.disconnect({ params, query }))}
      >
        <Field
          label="Name of the project, to confirm"
          value={typed}
          changed={setTyped}
          hint={`Type ${project}.`}
          autoComplete="off"
        />
      </Confirm>
    </>
  )
}

const Products = ({ project, environment }: Of) => {
  const { org } = useCaller()
  return (
    <>
      <h2>Products</h2>
      <Panel>
        <Pages
          place={`products ${org.slug} ${project} ${environment}`}
          what="products"
          ask={(cursor) =>
            customerPayments.listProducts({
              params: { orgId: org.slug, projectId: project },
              query: { environment, limit: 20, ...(cursor === undefined ? {} : { cursor }) }
            })
          }
        >
          {(items) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              label="Products"
              empty={<Code>{`svc payments products create ${project} Pro`}</Code>}
              columns={[
                { head: "Product", look: "written", cell: ({ name }) => name },
                { head: "What it is", look: "soft", cell: ({ description }) => description },
                { head: "Sold", cell: ({ active }) => (active ? "yes" : "no") },
                { head: "Created", cell: ({ createdAt }) => <At at={createdAt} /> }
              ]}
            />
          )}
        </Pages>
      </Panel>
    </>
  )
}

const Subscriptions = ({ project, environment }: Of) => {
  const { org } = useCaller()
  return (
    <>
      <h2>Subscriptions</h2>
      <Panel>
        <Pages
          place={`subscriptions ${org.slug} ${project} ${environment}`}
          what="subscriptions"
          ask={(cursor) =>
            customerPayments.listSubscriptions({
              params: { orgId: org.slug, projectId: project },
              query: { environment, limit: 20, ...(cursor === undefined ? {} : { cursor }) }
            })
          }
        >
          {(items) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              label="Subscriptions"
              empty="Nobody subscribes yet."
              columns={[
                { head: "Subscription", look: "code", cell: ({ id }) => `…${id.slice(-8)}` },
                {
                  head: "State",
                  cell: ({ status, note }) => <span title={note ?? undefined}>{status}</span>
                },
                {
                  head: "Period ends",
                  cell: ({ currentPeriodEnd, cancelAtPeriodEnd }) => (
                    <>
                      {currentPeriodEnd === null ? "–" : <At at={currentPeriodEnd} />}
                      {cancelAtPeriodEnd && ", and it with that"}
                    </>
                  )
                },
                { head: "Since", cell: ({ createdAt }) => <At at={createdAt} /> }
              ]}
            />
          )}
        </Pages>
      </Panel>
    </>
  )
}

const Events = ({ project, environment }: Of) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const [retried, setRetried] = useState(0)
  const { run, failure } = useDecision<never>(() => setRetried((before) => before + 1))
  return (
    <>
      <h2>Events from Stripe</h2>
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Pages
          place={`events ${org.slug} ${project} ${environment}`}
          version={String(retried)}
          what="events"
          ask={(cursor) =>
            customerPayments.listEvents({
              params,
              query: { environment, limit: 20, ...(cursor === undefined ? {} : { cursor }) }
            })
          }
        >
          {(items) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              label="Events from Stripe"
              empty="Stripe has sent nothing in 90 days."
              columns={[
                { head: "Happened", cell: ({ occurredAt }) => <At at={occurredAt} /> },
                { head: "Event", look: "code", cell: ({ type }) => type },
                {
                  head: "State",
                  cell: ({ processingStatus }) => (
                    <span className={processingStatus === "failed" ? "text-bad" : ""}>
                      {processingStatus}
                    </span>
                  )
                },
                {
                  ...menuColumn,
                  cell: ({ id, type, processingStatus }) => (
                    <RowMenu
                      label={type}
                      actions={
                        processingStatus !== "failed"
                          ? []
                          : [
                              {
                                name: "Work on it again",
                                by: CustomerPayments.endpoints.retryEvent,
                                run: () =>
                                  run((headers) =>
                                    customerPayments.retryEvent({
                                      params: { ...params, eventId: id },
                                      query: { environment },
                                      headers
                                    })
                                  )
                              }
                            ]
                      }
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
