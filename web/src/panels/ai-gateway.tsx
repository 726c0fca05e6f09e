/** An AI gateway: what it spent of its budget and on what, its keys, and the calls of the last days. */
import { Suspense, useMemo, useState } from "react"
import { AiGateways, type UsageView } from "#src/ai-gateways/api.ts"
import { aiGateways } from "../api/money.ts"
import { apiUrl } from "../api/place.ts"
import { takesRole } from "../api/roles.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { count, dollars } from "../parts/amounts.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Chart } from "../parts/lazy-chart.ts"
import { Pages } from "../parts/pages.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Secret } from "../parts/secret.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

interface Of {
  readonly orgId: string
  readonly projectId: string
  readonly gatewayId: string
}

export const AiGatewayPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, gatewayId: resource.uid }
  const usage = useAnswer(
    `usage ${resource.uid}`,
    () => aiGateways.usage({ params, query: { granularity: "day" } }),
    `${useEvery(15_000)} ${resource.revision}`
  )
  const { asked, ask, run, dialog } = useDecision<"budget">(usage.again)
  const [budget, setBudget] = useState("")
  return (
    <>
      <Answered of={usage} what="what it spent">
        {(month) => (
          <>
            <Tiles>
              <Tile
                value={dollars(month.spentUsd)}
                says={`spent of ${dollars(month.budgetUsd)} this month (UTC)`}
              />
              <Tile value={dollars(month.reservedUsd)} says="held for calls under way" />
              <Tile value={count(month.requests)} says="calls" />
              <Tile value={count(month.inputTokens + month.outputTokens)} says="tokens, in and out" />
            </Tiles>
            <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
              <code className="min-w-0 font-mono text-[12.5px] wrap-anywhere">
                {apiUrl}/v1/runtime/ai/{resource.name}
              </code>
              <Gated by={AiGateways.endpoints.update} what="Changing its budget">
                <Button
                  onClick={() => {
                    setBudget(String(month.budgetUsd))
                    ask("budget")
                  }}
                >
                  Change budget
                </Button>
              </Gated>
            </div>
            <Spending of={month} />
          </>
        )}
      </Answered>
      <Confirm
        {...dialog}
        open={asked === "budget"}
        title={`Budget of ${resource.name}`}
        says="Calls that could cost more than is left of it are refused. What was spent this month counts."
        action="Set it"
        ready={budget !== "" && Number(budget) >= 0 && Number(budget) <= 1_000_000}
        confirmed={() =>
          run(() => aiGateways.update({ params, headers: {}, payload: { monthlyBudgetUsd: Number(budget) } }))
        }
      >
        <Field
          label="US dollars a month"
          value={budget}
          changed={setBudget}
          inputMode="decimal"
          hint="0 refuses every call that costs something."
        />
      </Confirm>
      {takesRole(AiGateways.endpoints.listKeys, org.role) === undefined && (
        <Keys of={params} gateway={resource.name} />
      )}
      <Calls of={params} />
    </>
  )
}

const Spending = ({ of: { days, models, keys } }: { readonly of: typeof UsageView.Type }) => {
  const times = useMemo(() => (days ?? []).map(({ date }) => Date.parse(`${date}T00:00:00Z`)), [days])
  const lines = useMemo(
    () => [{ name: "spent", values: (days ?? []).map(({ spentUsd }) => spentUsd) }],
    [days]
  )
  const rows = [
    ...models.map(({ model, ...sums }) => ({ key: `model ${model}`, name: model, ...sums })),
    ...keys.map(({ keyId, name, ...sums }) => ({
      key: `key ${keyId}`,
      name: keyId === null ? "apps, by the token of their environment" : `key ${name ?? keyId}`,
      ...sums
    }))
  ]
  if (rows.length === 0) return null
  return (
    <>
      <h2>What it was spent on</h2>
      {times.length > 1 && (
        <figure className="mb-3 rounded-lg border border-line bg-panel px-3.5 pt-3 pb-1">
          <Suspense fallback={<div className="h-[150px]" />}>
            <Chart bars times={times} lines={lines} format={dollars} says={`Spent on ${times.length} days`} />
          </Suspense>
        </figure>
      )}
      <Panel>
        <Table
          of={rows}
          keyOf={({ key }) => key}
          empty=""
          columns={[
            { head: "Model or key", look: "written", cell: ({ name }) => name },
            { head: "Calls", look: "number", cell: ({ requests }) => count(requests) },
            { head: "Tokens in", look: "number", cell: ({ inputTokens }) => count(inputTokens) },
            { head: "Tokens out", look: "number", cell: ({ outputTokens }) => count(outputTokens) },
            { head: "Spent", look: "number", cell: ({ spentUsd }) => dollars(spentUsd) }
          ]}
        />
      </Panel>
    </>
  )
}

const Keys = ({ of: params, gateway }: { readonly of: Of; readonly gateway: string }) => {
  const answer = useAnswer(`keys ${params.gatewayId}`, () => aiGateways.listKeys({ params }))
  const { asked, ask, run, dialog } = useDecision<"create" | { readonly id: string; readonly name: string }>(
    answer.again
  )
  const [name, setName] = useState("")
  const [made, setMade] = useState<{ readonly name: string; readonly secret: string }>()
  const revoked = typeof asked === "object" ? asked : undefined
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Keys</h2>
        <Gated by={AiGateways.endpoints.createKey} what="Creating one">
          <Button
            onClick={() => {
              setName("")
              ask("create")
            }}
          >
            Create a key
          </Button>
        </Gated>
      </div>
      {made !== undefined && (
        <div className="mb-3">
          <Secret value={made.secret} what={`The key ${made.name}`} hide={() => setMade(undefined)} />
        </div>
      )}
      <Panel>
        <Answered of={answer} what="keys">
          {(keys) => (
            <Table
              of={keys}
              keyOf={({ id }) => id}
              label="Keys"
              empty={
                <>
                  <p>There is none. Apps of the environment need none; others call it with one:</p>
                  <Code>{`curl ${apiUrl}/v1/runtime/ai/${gateway}/chat/completions -H "authorization: Bearer $KEY"`}</Code>
                </>
              }
              columns={[
                { head: "Name", look: "written", cell: ({ name }) => name },
                { head: "Begins with", look: "code", cell: ({ keyPrefix }) => keyPrefix },
                {
                  head: "Last used",
                  cell: ({ lastUsedAt }) => (lastUsedAt === null ? "never" : <Ago at={lastUsedAt} />)
                },
                { head: "Created", cell: ({ createdAt }) => <At at={createdAt} /> },
                {
                  head: "Revoked",
                  cell: ({ revokedAt }) => (revokedAt === null ? "–" : <At at={revokedAt} />)
                },
                {
                  ...menuColumn,
                  cell: ({ id, name, revokedAt }) => (
                    <RowMenu
                      label={name}
                      actions={
                        revokedAt !== null
                          ? []
                          : [
                              {
                                name: "Revoke",
                                by: AiGateways.endpoints.revokeKey,
                                danger: true,
                                run: () => ask({ id, name })
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
      <Confirm
        {...dialog}
        open={asked === "create"}
        title="Create a key"
        says="Whoever has it can call the gateway, within its budget. It is shown once."
        action="Create it"
        ready={name.trim() !== ""}
        confirmed={() =>
          run(
            (headers) => aiGateways.createKey({ params, headers, payload: { name } }),
            ({ name, secret }) => setMade({ name, secret })
          )
        }
      >
        <Field label="Name" value={name} changed={setName} maxLength={100} hint="Who uses it." />
      </Confirm>
      <Confirm
        {...dialog}
        open={revoked !== undefined}
        look="danger"
        title={`Revoke ${revoked?.name ?? ""}`}
        says="Calls with it are refused at once, and those under way are cut off."
        action="Revoke it"
        confirmed={() =>
          revoked !== undefined &&
          run(() => aiGateways.revokeKey({ params: { ...params, keyId: revoked.id } }))
        }
      />
    </>
  )
}

const Calls = ({ of: params }: { readonly of: Of }) => (
  <>
    <h2>Calls of the last seven days</h2>
    <Panel>
      <Pages
        place={`calls ${params.gatewayId}`}
        what="calls"
        ask={(cursor) =>
          aiGateways.requests({ params, query: { limit: 20, ...(cursor === undefined ? {} : { cursor }) } })
        }
      >
        {(items) => (
          <Table
            of={items}
            keyOf={({ id }) => id}
            label="Calls"
            empty="Nobody has called it."
            columns={[
              { head: "Ended", cell: ({ endedAt }) => <At at={endedAt} /> },
              {
                head: "Model",
                look: "code",
                cell: ({ model, upstream }) => (upstream === null ? model : `${model}, ${upstream}`)
              },
              {
                head: "Answer",
                cell: ({ status }) => (
                  <span className={status === null || status >= 400 ? "text-bad" : ""}>
                    {status ?? "lost"}
                  </span>
                )
              },
              {
                head: "Tokens",
                look: "number",
                cell: ({ inputTokens, outputTokens, estimated }) =>
                  `${estimated ? "about " : ""}${count(inputTokens)} + ${count(outputTokens)}`
              },
              {
                head: "Took",
                look: "number",
                cell: ({ latencyMs }) => (latencyMs === null ? "–" : `${count(latencyMs)} ms`)
              },
              { head: "Cost", look: "number", cell: ({ costUsd }) => dollars(costUsd) }
            ]}
          />
        )}
      </Pages>
    </Panel>
  </>
)
