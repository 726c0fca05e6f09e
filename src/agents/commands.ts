/** `svc grants` and `svc mcp`: what agents were granted, and how MCP clients reach the control plane. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { authorized } from "#src/cli/bearer.ts"
import { asking, inBrowser } from "#src/cli/browser-login.ts"
import { call } from "#src/cli/client.ts"
import { confirmName, connection, loginOf, yes } from "#src/cli/flags.ts"
import { mcpCredential } from "#src/cli/login.ts"
import { json, out, paint, say, table } from "#src/cli/output.ts"
import { commandIn, inOrganization } from "#src/cli/resource-commands.ts"
import { clients, configurations } from "./client-configurations.ts"

const command = commandIn(inOrganization)

const grantsLs = command("ls", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const grants = yield* call(client.asOwner.agentGrants.list(yield* at))
    if (asJson) return yield* json(grants)
    if (grants.length === 0) return yield* say("Nothing is granted to agents")
    yield* out(
      table(
        ["GRANT", "AGENT", "FOR", "ROLE", "OPERATIONS", "LAST USED", ""],
        grants.map(({ grantId, audience, clientName, lastUsedAt, revokedAt, role, scopes }) => [
          grantId,
          clientName,
          audience,
          role,
          String(scopes.length),
          lastUsedAt ?? "never",
          revokedAt === null ? "" : `revoked ${revokedAt.slice(0, 10)}`
        ])
      )
    )
  })
).pipe(Command.withAlias("list"), Command.withDescription("List what was granted to agents"))

const grantsRevoke = command(
  "revoke",
  { grant: Argument.String("grant"), yes },
  ({ client, at, json: asJson, flags: { grant, yes } }) =>
    Effect.gen(function* () {
      yield* confirmName(`The agent of the grant ${grant} is let in no more.`, grant, yes)
      const { params } = yield* at
      const done = yield* call(client.asOwner.agentGrants.revoke({ params: { ...params, grantId: grant } }))
      yield* asJson ? json(done) : say("Revoked")
    })
).pipe(Command.withDescription("Revoke a grant, by its id"))

export const grants = Command.make("grants").pipe(
  Command.withDescription("What agents were granted (takes a session; in a browser: /account/agents)"),
  Command.withSubcommands([grantsLs, grantsRevoke])
)

const mcpLogin = Command.make("login", { ...connection, ...asking }, (flags) =>
  Effect.flatMap(loginOf(flags), (login) => inBrowser(login, flags, "svc-mcp"))
).pipe(Command.withDescription("Sign in for svc mcp serve (clients that speak HTTP sign in themselves)"))

const mcpServe = Command.make("serve", connection, (flags) =>
  Effect.gen(function* () {
    const { bridge } = yield* Effect.promise(() => import("./stdio-bridge.ts"))
    const { apiUrl } = yield* loginOf(flags)
    yield* bridge({
      url: `${apiUrl}/mcp`,
      // Asked anew for each message: who signs in meanwhile need not start the client again.
      send: Effect.flatMap(loginOf(flags), (login) => authorized(fetch, mcpCredential(login))),
      hint: `A person signs in, or grants more, by running this in a terminal: svc mcp login --api-url ${apiUrl}`
    })
  })
).pipe(Command.withDescription("Serve MCP on standard input and output, for clients that know no HTTP"))

export const mcp = Command.make(
  "mcp",
  {
    ...connection,
    client: Flag.Literals("client", clients).pipe(
      Flag.withDescription("Only what goes into the configuration of this client"),
      Flag.optional
    )
  },
  (flags) =>
    Effect.gen(function* () {
      const { apiUrl } = yield* loginOf(flags)
      const known = configurations(apiUrl)
      if (Option.isSome(flags.client)) return yield* out(known[flags.client.value].text)
      for (const { title, where, text } of Object.values(known))
        yield* out(`${paint("bold", title)}  ${where}\n\n${text}\n`)
    })
).pipe(
  Command.withDescription("Print what makes MCP clients use the control plane"),
  Command.withSubcommands([mcpLogin, mcpServe])
)
