/** `svc keys`, `svc audit`: what else opens the organization, and what was done in it. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"

const key = Argument.String("key").pipe(Argument.withDescription("Id, name or first characters"))
const { command, list, ls } = resourceCommands({
  scope: inOrganization,
  noun: "API key",
  plural: "API keys",
  argument: key,
  list: ({ asOwner }, at) => asOwner.apikeys.list(at),
  nameOf: ({ name }) => name,
  one: ({ params }, { id }) => ({ params: { ...params, keyId: id } })
})
const state = ({ revokedAt }: { readonly revokedAt: string | null }) =>
  revokedAt === null ? "" : `revoked ${revokedAt.slice(0, 10)}`

const keysLs = ls({
  columns: {
    KEY: ({ keyPrefix }) => keyPrefix,
    NAME: ({ name }) => name,
    ROLE: ({ role }) => role,
    "LAST USED": ({ lastUsedAt }) => lastUsedAt ?? "never",
    "": state
  }
}).pipe(Command.withDescription("List API keys, revoked ones too"))

const keysCreate = command(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("What it is for, such as ci")),
    role: Flag.Literals("role", ["member", "admin"]).pipe(
      Flag.withDescription("Highest role that it acts in"),
      Flag.withDefault("admin")
    )
  },
  ({ client, at, json: asJson, flags: payload }) =>
    Effect.gen(function* () {
      const made = yield* call(client.asOwner.apikeys.create({ ...(yield* at), payload, headers: {} }))
      if (asJson) return yield* json(made)
      yield* say(`Made "${made.name}" with the role ${made.role}. The key is shown this once:`)
      yield* out(made.key)
    })
).pipe(Command.withDescription("Create an API key; it is printed once, alone on standard output"))

/** By its first characters too, which may fit several: then nothing is revoked. */
const keysRevoke = command("revoke", { key, yes }, ({ client: { asOwner }, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const place = yield* at
    const keys = yield* list(place)
    const byId = keys.filter(({ id }) => id === flags.key)
    const named = keys.filter(
      ({ name, keyPrefix, revokedAt }) =>
        revokedAt === null &&
        (name === flags.key || keyPrefix === flags.key || keyPrefix === `${flags.key}...`)
    )
    const [found, second] = byId.length > 0 ? byId : named
    if (found === undefined) return yield* failure(`There is no API key "${flags.key}"`, exitCodes.notFound)
    if (second !== undefined) {
      return yield* failure(
        `"${flags.key}" fits several keys; give the id: ${named.map(({ id }) => id).join(", ")}`,
        exitCodes.usage
      )
    }
    yield* confirmName(`What uses the key "${found.name}" stops working.`, found.name, flags.yes)
    const done = yield* call(asOwner.apikeys.revoke({ params: { ...place.params, keyId: found.id } }))
    yield* asJson
      ? json({ id: found.id, ...done })
      : say(`"${found.name}" (${found.keyPrefix}) opens nothing any more`)
  })
).pipe(Command.withDescription("Revoke an API key"))

export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of the organization"),
  Command.withSubcommands([keysLs, keysCreate, keysRevoke])
)

const commandInOrganization = commandIn(inOrganization)

export const audit = commandInOrganization(
  "audit",
  {
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(50)),
    filter: {
      operation: Flag.String("operation").pipe(Flag.withDescription("Such as caches.delete"), Flag.optional),
      principal: Flag.String("principal").pipe(Flag.withDescription("user:<id> or key:<id>"), Flag.optional),
      resource: Flag.String("resource").pipe(Flag.withDescription("Id of what it was done to"), Flag.optional)
    }
  },
  ({ client: { asMember }, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const filter = given(flags.filter)
      const items = yield* itemsOf(
        (page) => call(asMember.audit.list({ params, query: { ...filter, ...page } })),
        flags.limit
      )
      if (asJson) return yield* json(items)
      yield* out(
        table(
          ["WHEN", "OUTCOME", "OPERATION", "WHO", "ON"],
          items.map(({ at, outcome, operation, principal, resource }) => [
            at,
            String(outcome),
            operation,
            principal,
            resource ?? ""
          ])
        )
      )
    })
).pipe(Command.withDescription("Show who did what, and who was refused what"))
