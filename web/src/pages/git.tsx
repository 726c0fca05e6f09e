/** What is at forges: connections that open repositories, and git sources, whose manifests are applied. */
import { useState } from "react"
import { GitConnections, type GitConnectionView } from "#src/git/api.ts"
import { GitSources } from "#src/git-sources/api.ts"
import { gitConnections, gitSources } from "../api/git.ts"
import { takesRole } from "../api/roles.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { useEvery } from "../panels/every.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
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
import { useReturns } from "../returns.ts"
import { pathTo } from "../router.ts"

type Connection = typeof GitConnectionView.Type
type Asked =
  | { readonly what: "create" }
  | { readonly what: "credential" | "delete"; readonly connection: Connection }

const kinds: ReadonlyArray<readonly [Connection["kind"], string]> = [
  ["github_token", "GitHub, by a token"],
  ["github_app", "GitHub, by an app"],
  ["gitlab", "GitLab"],
  ["gitea", "Gitea"],
  ["forgejo", "Forgejo"]
]
const names: ReadonlyMap<string, string> = new Map(kinds)

export const GitPage = () => (
  <>
    <Head title="Git" />
    <Gated by={GitConnections.endpoints.list} what="Seeing connections">
      <Connections />
    </Gated>
    <Sources />
  </>
)

const Connections = () => {
  const { org } = useCaller()
  const params = { orgId: org.slug }
  // They are no resources, whose changes would be told.
  const version = `${useEvery(30_000)} ${useReturns()}`
  const answer = useAnswer(`connections ${org.slug}`, () => gitConnections.list({ params }), version)
  const { asked, ask, run, failure, dialog } = useDecision<Asked>(answer.again)
  const [kind, setKind] = useState<Connection["kind"]>("github_token")
  const [name, setName] = useState("")
  const [owner, setOwner] = useState("")
  const [url, setUrl] = useState("")
  const [credential, setCredential] = useState("")
  const [app, setApp] = useState({ appId: "", installationId: "" })
  const [secret, setSecret] = useState<{ readonly of: Connection; readonly value: string }>()
  const one = asked !== undefined && asked.what !== "create" ? asked.connection : undefined
  const isApp = (one?.kind ?? kind) === "github_app"
  const begin = (next: Asked) => {
    setCredential("")
    if (next.what === "create") {
      setName("")
      setOwner("")
      setUrl("")
      setApp({ appId: "", installationId: "" })
    }
    ask(next)
  }
  const credentialField = isApp ? (
    <Field
      label="Private key of the app, PEM"
      type="password"
      value={credential}
      changed={setCredential}
      autoComplete="new-password"
    />
  ) : (
    <Field
      label="Token"
      type="password"
      value={credential}
      changed={setCredential}
      autoComplete="new-password"
    />
  )
  return (
    <>
      <div className="mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Connections</h2>
        <Gated by={GitConnections.endpoints.create} what="Connecting">
          <Button onClick={() => begin({ what: "create" })}>Connect a forge</Button>
        </Gated>
      </div>
      {failure !== undefined && <Problem failure={failure} />}
      {secret !== undefined && (
        <div className="mb-3 space-y-2">
          <Secret
            value={secret.value}
            what={`The webhook secret of ${secret.of.name}`}
            hide={() => setSecret(undefined)}
          />
          <p className="text-soft">
            Have the forge send pushes and pull requests to{" "}
            <code className="font-mono text-[12.5px] wrap-anywhere">{secret.of.webhookUrl}</code>, with this
            secret.
          </p>
        </div>
      )}
      <Panel>
        <Answered of={answer} what="connections">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Connections"
              empty={
                <>
                  <p>
                    No forge is connected. A connection lets pushes deploy, and pull requests have previews:
                  </p>
                  <Code>
                    {"echo $TOKEN | svc git-connections create acme --kind github_token --owner acme"}
                  </Code>
                </>
              }
              columns={[
                { head: "Name", look: "written", cell: ({ name }) => <b className="font-medium">{name}</b> },
                {
                  head: "Forge",
                  cell: ({ kind, url }) => <span title={url}>{names.get(kind) ?? kind}</span>
                },
                { head: "Repositories of", look: "written", cell: ({ owner }) => owner },
                {
                  head: "Checked",
                  look: "written",
                  cell: ({ checkedAt, checkError, account }) =>
                    checkedAt === null ? (
                      "not yet"
                    ) : checkError === null ? (
                      <>
                        works{account !== null && ` as ${account}`}, <Ago at={checkedAt} /> ago
                      </>
                    ) : (
                      <span className="text-bad">{checkError}</span>
                    )
                },
                {
                  head: "Webhook",
                  look: "code",
                  cell: ({ webhookUrl }) => webhookUrl
                },
                {
                  ...menuColumn,
                  cell: (connection) => (
                    <RowMenu
                      label={connection.name}
                      actions={[
                        {
                          name: "Check now",
                          by: GitConnections.endpoints.check,
                          run: () =>
                            run(() =>
                              gitConnections.check({ params: { ...params, connectionId: connection.id } })
                            )
                        },
                        {
                          name: "Replace the credential",
                          by: GitConnections.endpoints.update,
                          run: () => begin({ what: "credential", connection })
                        },
                        {
                          name: "Delete",
                          by: GitConnections.endpoints.delete,
                          danger: true,
                          run: () => begin({ what: "delete", connection })
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
      <Confirm
        {...dialog}
        open={asked?.what === "create"}
        title="Connect a forge"
        says="Repositories of the account are fetched with the credential, which is stored encrypted and never shown."
        action="Connect it"
        ready={name !== "" && owner !== "" && credential !== ""}
        confirmed={() =>
          run(
            (headers) =>
              gitConnections.create({
                params,
                headers,
                payload: {
                  name,
                  kind,
                  owner,
                  ...(url === "" ? {} : { url }),
                  ...(isApp ? { privateKey: credential, ...app } : { token: credential })
                }
              }),
            ({ webhookSecret, ...made }) => setSecret({ of: made, value: webhookSecret })
          )
        }
      >
        <Choice label="Forge" value={kind} of={kinds} changed={setKind} />
        <Field label="Name" value={name} changed={setName} maxLength={63} autoComplete="off" />
        <Field
          label="Account or group"
          value={owner}
          changed={setOwner}
          autoComplete="off"
          hint="Whose repositories it opens."
        />
        <Field
          label="Address"
          type="url"
          value={url}
          changed={setUrl}
          hint="Empty: github.com or gitlab.com."
        />
        {isApp && (
          <>
            <Field label="Id of the app" value={app.appId} changed={(appId) => setApp({ ...app, appId })} />
            <Field
              label="Id of the installation"
              value={app.installationId}
              changed={(installationId) => setApp({ ...app, installationId })}
            />
          </>
        )}
        {credentialField}
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "credential"}
        title={`Replace the credential of ${one?.name ?? ""}`}
        says="The new one is used from now on. It is stored encrypted and never shown."
        action="Replace it"
        ready={credential !== ""}
        confirmed={() =>
          one !== undefined &&
          run(() =>
            gitConnections.update({
              params: { ...params, connectionId: one.id },
              payload: isApp ? { privateKey: credential } : { token: credential }
            })
          )
        }
      >
        {credentialField}
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "delete"}
        look="danger"
        title={`Delete ${one?.name ?? ""}`}
        says="Its repositories are fetched no more, nor listened to: pushes do not deploy, and previews are not followed. What runs stays."
        action="Delete it"
        confirmed={() =>
          one !== undefined &&
          run(() => gitConnections.delete({ params: { ...params, connectionId: one.id } }))
        }
      />
    </>
  )
}

const Sources = () => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug }
  const resources = all.filter(({ kind }) => kind === "GitSource")
  const answer = useAnswer(
    `sources ${org.slug}`,
    () => gitSources.list({ params }),
    resources.map(({ revision }) => revision).join(" ")
  )
  const mayConnect = takesRole(GitConnections.endpoints.list, org.role) === undefined
  const connections = useAnswer(
    `connections of ${org.slug} ${mayConnect}`,
    () => gitConnections.list({ params }),
    `${useEvery(30_000)} ${useReturns()}`
  )
  const { asked, ask, run, dialog } = useDecision<"create">(answer.again)
  const [name, setName] = useState("")
  const [url, setUrl] = useState("")
  const [ref, setRef] = useState("main")
  const [path, setPath] = useState("svc.manifest.yaml")
  const [connection, setConnection] = useState("")
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Git sources</h2>
        <Gated by={GitSources.endpoints.create} what="Creating one">
          <Button
            onClick={() => {
              setName("")
              setUrl("")
              ask("create")
            }}
          >
            Add a git source
          </Button>
        </Gated>
      </div>
      <Panel>
        <Answered of={answer} what="git sources">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Git sources"
              empty={
                <>
                  <p>None. A git source keeps this organization what a manifest in a repository says:</p>
                  <Code>svc git-sources create infra https://github.com/acme/infra.git</Code>
                </>
              }
              columns={[
                {
                  head: "Name",
                  look: "written",
                  cell: ({ id, name }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="font-medium hover:underline">
                      {name}
                    </Link>
                  )
                },
                { head: "Repository", look: "code", cell: ({ url, ref }) => `${url} ${ref}` },
                {
                  head: "State",
                  cell: ({ status }) => (
                    <span className={status === "failed" ? "text-bad" : ""}>{status}</span>
                  )
                },
                { head: "Commit", look: "code", cell: ({ commit }) => commit?.slice(0, 12) ?? "–" },
                {
                  head: "Applied",
                  cell: ({ applied }) => (applied === null ? "never" : <At at={applied.at} />)
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      <Confirm
        {...dialog}
        open={asked === "create"}
        title="Add a git source"
        says="What its manifest says is applied by itself, with your rights and never more than an admin's. Plans that an owner must make, or that delete much, are left to people."
        action="Add it"
        ready={name !== "" && url.startsWith("https://")}
        confirmed={() =>
          run((headers) =>
            gitSources.create({
              params,
              headers,
              payload: { name, url, ref, path, ...(connection === "" ? {} : { connection }) }
            })
          )
        }
      >
        <Field label="Name" value={name} changed={setName} maxLength={63} autoComplete="off" />
        <Field label="Repository" type="url" value={url} changed={setUrl} placeholder="https://" />
        <Field label="Branch, tag or commit" value={ref} changed={setRef} />
        <Field label="File" value={path} changed={setPath} />
        <Choice
          label="Connection"
          value={connection}
          of={[
            ["", "none: the repository is public"],
            ...(connections.value ?? []).map(({ id, name }) => [id, name] as const)
          ]}
          changed={setConnection}
        />
      </Confirm>
    </>
  )
}
