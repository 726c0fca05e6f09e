/** What acts in the organization without a person at a browser: API keys, and what people granted to agents. */
import { useState } from "react"
import { AgentGrants } from "#src/agents/api.ts"
import { ApiKeys } from "#src/organizations/api/api-keys.ts"
import { organization } from "../api/organization.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Code, Head, Panel } from "../parts/panel.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Secret } from "../parts/secret.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"

type Role = "member" | "admin"
type Asked =
  | { readonly what: "create" }
  | { readonly what: "revoke"; readonly id: string; readonly name: string }

export const KeysPage = () => (
  <>
    <Head title="Keys and agents" />
    <Gated by={ApiKeys.endpoints.list} what="Seeing API keys">
      <Keys />
    </Gated>
    <Grants />
  </>
)

const Keys = () => {
  const { org } = useCaller()
  const params = { orgId: org.slug }
  const answer = useAnswer(`keys ${org.slug}`, () => organization.apikeys.list({ params }))
  const { asked, ask, run, dialog } = useDecision<Asked>(answer.again)
  const [name, setName] = useState("")
  const [role, setRole] = useState<Role>("member")
  const [made, setMade] = useState<{ readonly name: string; readonly key: string }>()
  const revoked = asked?.what === "revoke" ? asked : undefined
  return (
    <>
      <div className="mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">API keys</h2>
        <Gated by={ApiKeys.endpoints.create} what="Creating one">
          <Button
            onClick={() => {
              setName("")
              ask({ what: "create" })
            }}
          >
            Create a key
          </Button>
        </Gated>
      </div>
      {made !== undefined && (
        <div className="mb-3">
          <Secret value={made.key} what={`The key ${made.name}`} hide={() => setMade(undefined)} />
        </div>
      )}
      <Panel>
        <Answered of={answer} what="keys">
          {(keys) => (
            <Table
              of={keys}
              keyOf={({ id }) => id}
              label="API keys"
              empty={
                <>
                  <p>There is none. Programs and CI use one:</p>
                  <Code>svc keys create ci --role admin</Code>
                </>
              }
              columns={[
                { head: "Name", look: "written", cell: ({ name }) => name },
                { head: "Begins with", look: "code", cell: ({ keyPrefix }) => keyPrefix },
                { head: "Role", cell: ({ role }) => role },
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
                                by: ApiKeys.endpoints.revoke,
                                danger: true,
                                run: () => ask({ what: "revoke", id, name })
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
        open={asked?.what === "create"}
        title="Create an API key"
        says="Whoever has it acts in this organization, in its role and never with more rights than you have. It is shown once."
        action="Create it"
        ready={name.trim() !== ""}
        confirmed={() =>
          run(
            (headers) => organization.apikeys.create({ params, headers, payload: { name, role } }),
            ({ name, key }) => setMade({ name, key })
          )
        }
      >
        <Field label="Name" value={name} changed={setName} maxLength={100} hint="What uses it." />
        <Choice
          label="Role"
          value={role}
          of={[
            ["member", "member"],
            ["admin", "admin"]
          ]}
          changed={setRole}
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={revoked !== undefined}
        look="danger"
        title={`Revoke ${revoked?.name ?? ""}`}
        says="It opens nothing from then on. What uses it fails until it has another one."
        action="Revoke it"
        confirmed={() =>
          revoked !== undefined &&
          run(() => organization.apikeys.revoke({ params: { ...params, keyId: revoked.id } }))
        }
      />
    </>
  )
}

const Grants = () => {
  const { org } = useCaller()
  const params = { orgId: org.slug }
  const answer = useAnswer(`grants ${org.slug}`, () => organization.agentGrants.list({ params }))
  const { asked, ask, run, dialog } = useDecision<{ readonly id: string; readonly name: string }>(
    answer.again
  )
  return (
    <>
      <h2>Granted to agents</h2>
      <Panel>
        <Answered of={answer} what="grants">
          {(grants) => (
            <Table
              of={grants}
              keyOf={({ grantId }) => grantId}
              label="Grants"
              empty={
                <>
                  <p>Nothing is granted. The command line and MCP clients ask for it when they sign in:</p>
                  <Code>svc login</Code>
                </>
              }
              columns={[
                { head: "Agent", look: "written", cell: ({ clientName }) => clientName },
                {
                  head: "Granted by",
                  look: "written",
                  cell: ({ userEmail }) => userEmail ?? "no member any more"
                },
                { head: "Role", cell: ({ role }) => role },
                {
                  head: "May",
                  cell: ({ scopes }) => (
                    <details>
                      <summary>
                        {scopes.length} {scopes.length === 1 ? "operation" : "operations"}
                      </summary>
                      <p className="mt-1 max-w-72 font-mono text-[12px] wrap-anywhere text-soft">
                        {scopes.join(", ")}
                      </p>
                    </details>
                  )
                },
                {
                  head: "Last used",
                  cell: ({ lastUsedAt }) => (lastUsedAt === null ? "never" : <Ago at={lastUsedAt} />)
                },
                {
                  head: "Ends",
                  cell: ({ expiresAt, revokedAt }) =>
                    revokedAt === null ? (
                      <At at={expiresAt} />
                    ) : (
                      <span className="text-soft">
                        revoked <At at={revokedAt} />
                      </span>
                    )
                },
                {
                  ...menuColumn,
                  cell: ({ grantId, clientName, revokedAt }) => (
                    <RowMenu
                      label={clientName}
                      actions={
                        revokedAt !== null
                          ? []
                          : [
                              {
                                name: "Revoke",
                                by: AgentGrants.endpoints.revoke,
                                danger: true,
                                run: () => ask({ id: grantId, name: clientName })
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
        open={asked !== undefined}
        look="danger"
        title={`Revoke what ${asked?.name ?? ""} was granted`}
        says="The agent is refused at once, and has to ask again."
        action="Revoke it"
        confirmed={() =>
          asked !== undefined &&
          run(() => organization.agentGrants.revoke({ params: { ...params, grantId: asked.id } }))
        }
      />
    </>
  )
}
