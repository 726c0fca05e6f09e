/** `svc git-connections`: which forges repositories are fetched from. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { failure } from "#src/cli/failure.ts"
import { confirmName, readSecret, yes } from "#src/cli/flags.ts"
import { json, out, paint, say } from "#src/cli/output.ts"
import { inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { connectionKinds } from "./connection-kinds.ts"

const { command, on, ls, get, update } = resourceCommands({
  scope: inOrganization,
  noun: "connection",
  plural: "connections",
  argument: Argument.String("connection").pipe(Argument.withDescription("Its name or id")),
  list: ({ asMember }, at) => asMember.gitConnections.list(at),
  nameOf: ({ name }) => name,
  one: ({ params }, { id }) => ({ params: { ...params, connectionId: id } })
})

interface Checked {
  readonly account: string | null
  readonly checkError: string | null
  readonly checkedAt: string | null
}
const state = ({ account, checkError, checkedAt }: Checked) => {
  if (checkError !== null) return paint("red", checkError)
  return checkedAt === null ? "not checked" : paint("green", `works as ${account ?? "?"}`)
}

const list = ls({
  columns: {
    NAME: ({ name }) => name,
    KIND: ({ kind }) => kind,
    OWNER: ({ owner }) => owner,
    FORGE: ({ url }) => url,
    STATE: state
  },
  empty: () => "No repositories are connected"
})

const show = get((connection) => [
  ["id", connection.id],
  ["name", connection.name],
  ["kind", connection.kind],
  ["forge", connection.url],
  ["owner", connection.owner],
  ["webhook", connection.webhookUrl],
  ["state", state(connection)]
])

const secretNames = { app: "Private key of the app (PEM)", token: "Token" }

const create = command(
  "create",
  {
    name: Argument.String("name"),
    kind: Flag.Literals("kind", connectionKinds).pipe(
      Flag.withDescription("Of the forge and the credential")
    ),
    owner: Flag.String("owner").pipe(Flag.withDescription("Account or group whose repositories it opens")),
    url: Flag.String("url").pipe(
      Flag.withDescription("Of the forge (else github.com or gitlab.com)"),
      Flag.optional
    ),
    appId: Flag.String("app-id").pipe(Flag.withDescription("Of a GitHub App"), Flag.optional),
    installationId: Flag.String("installation-id").pipe(
      Flag.withDescription("Of a GitHub App's installation"),
      Flag.optional
    )
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { name, kind, owner } = flags
      const isApp = kind === "github_app"
      const secret = yield* readSecret(isApp ? secretNames.app : secretNames.token)
      const made = yield* call(
        client.asMember.gitConnections.create({
          ...(yield* at),
          headers: {},
          payload: {
            name,
            kind,
            owner,
            ...(isApp ? { privateKey: secret } : { token: secret.trim() }),
            ...(Option.isSome(flags.url) ? { url: flags.url.value } : {}),
            ...(Option.isSome(flags.appId) ? { appId: flags.appId.value } : {}),
            ...(Option.isSome(flags.installationId) ? { installationId: flags.installationId.value } : {})
          }
        })
      )
      if (asJson) return yield* json(made)
      yield* say(`Have the forge tell ${made.webhookUrl} of pushes and pull requests, as JSON.`)
      yield* say("The secret to sign that with is shown this once:")
      yield* out(made.webhookSecret)
    })
).pipe(
  Command.withDescription("Connect repositories; the token, or an app's private key, is read from stdin")
)

const change = update({
  settings: {
    name: Flag.String("name").pipe(Flag.withDescription("Another name"), Flag.optional),
    owner: Flag.String("owner").pipe(
      Flag.withDescription("Account or group whose repositories it opens"),
      Flag.optional
    ),
    installationId: Flag.String("installation-id").pipe(
      Flag.withDescription("Of a GitHub App's installation"),
      Flag.optional
    ),
    secret: Flag.Boolean("secret").pipe(
      Flag.withDescription("Replace the token, or an app's private key, by what is read from stdin"),
      Flag.optional
    )
  },
  waits: false,
  payload: ({ secret, ...settings }, { kind }) =>
    secret === true
      ? Effect.map(readSecret(kind === "github_app" ? secretNames.app : secretNames.token), (value) => ({
          ...settings,
          ...(kind === "github_app" ? { privateKey: value } : { token: value.trim() })
        }))
      : Effect.succeed(settings),
  send: ({ asMember }, request) => asMember.gitConnections.update(request),
  changed: (answer) => answer,
  say: (connection) => `${connection.name} (${connection.kind}, ${connection.owner}): ${state(connection)}`
}).pipe(Command.withDescription("Change a connection, or replace its credential"))

const check = on("check", {}, ({ one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const checked = yield* call(client.asMember.gitConnections.check(one))
    yield* asJson ? json(checked) : say(`${checked.name}: ${state(checked)}`)
    if (checked.checkError !== null) return yield* failure("")
  })
).pipe(Command.withDescription("Ask the forge whether the credential works"))

const rm = on("rm", { yes }, ({ name, one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(`Repositories of ${name} are fetched no more.`, name, flags.yes)
    const done = yield* call(client.asMember.gitConnections.delete(one))
    yield* asJson ? json(done) : say("Deleted")
  })
).pipe(Command.withAlias("delete"), Command.withDescription("Delete a connection"))

export const gitConnections = Command.make("git-connections").pipe(
  Command.withDescription("Which forges repositories are at, and what opens them"),
  Command.withSubcommands([list, show, create, change, check, rm])
)
