/** `svc grants`: what agents were granted. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inOrganization } from "#src/cli/resource-commands.ts"

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
