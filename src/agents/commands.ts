/** `svc grants`: what agents were granted. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inOrganization } from "#src/cli/resource-commands.ts"

const command = commandIn(inOrganization)

/** Who may take grants back is a person: an agent could otherwise end the others. */
const asPerson = Effect.flatMap(Client, ({ asOwner, login }) =>
  login.session === undefined
    ? Effect.fail(
        failure(
          `This takes a person's session, which svc login does not give; in a browser it is at ${login.apiUrl}/account/agents`,
          exitCodes.authentication
        )
      )
    : Effect.succeed(asOwner)
)

const grantsLs = command("ls", {}, ({ at, json: asJson }) =>
  Effect.gen(function* () {
    const { agentGrants } = yield* asPerson
    const grants = yield* call(agentGrants.list(yield* at))
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
  ({ at, json: asJson, flags: { grant, yes } }) =>
    Effect.gen(function* () {
      const { agentGrants } = yield* asPerson
      yield* confirmName(`The agent of the grant ${grant} is let in no more.`, grant, yes)
      const { params } = yield* at
      const done = yield* call(agentGrants.revoke({ params: { ...params, grantId: grant } }))
      yield* asJson ? json(done) : say("Revoked")
    })
).pipe(Command.withDescription("Revoke a grant, by its id"))

export const grants = Command.make("grants").pipe(
  Command.withDescription("What agents were granted (takes a session; in a browser: /account/agents)"),
  Command.withSubcommands([grantsLs, grantsRevoke])
)
