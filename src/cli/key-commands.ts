/** `svc keys`, `svc grants`, `svc audit`: what else opens the organization, and what was done in it. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, yes } from "./flags.ts"
import { json, out, say, table } from "./output.ts"

const listKeys = Effect.gen(function* () {
  const { asOwner, org } = yield* Client
  return yield* call(asOwner.apikeys.list({ params: { orgId: org } }))
})
const state = (revokedAt: string | null) => (revokedAt === null ? "" : `revoked ${revokedAt.slice(0, 10)}`)

const keysLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const keys = yield* listKeys
      if (flags.json) return yield* json(keys)
      yield* out(
        table(
          ["KEY", "NAME", "ROLE", "LAST USED", ""],
          keys.map(({ keyPrefix, name, role, lastUsedAt, revokedAt }) => [
            keyPrefix,
            name,
            role,
            lastUsedAt ?? "never",
            state(revokedAt)
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List API keys, revoked ones too"))

const keysCreate = Command.make(
  "create",
  {
    ...connection,
    name: Argument.String("name").pipe(Argument.withDescription("What it is for, such as ci")),
    role: Flag.Literals("role", ["member", "admin"]).pipe(
      Flag.withDescription("Highest role that it acts in"),
      Flag.withDefault("admin")
    ),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const payload = { name: flags.name, role: flags.role }
        const made = yield* call(asOwner.apikeys.create({ params: { orgId: org }, payload, headers: {} }))
        if (flags.json) return yield* json(made)
        yield* say(`Made "${made.name}" with the role ${made.role}. The key is shown this once:`)
        yield* out(made.key)
      })
    )
).pipe(Command.withDescription("Create an API key; it is printed once, alone on standard output"))

const keysRevoke = Command.make(
  "revoke",
  {
    ...connection,
    key: Argument.String("key").pipe(Argument.withDescription("Id, name or first characters")),
    yes,
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const keys = yield* listKeys
        const byId = keys.filter(({ id }) => id === flags.key)
        const named = keys.filter(
          ({ name, keyPrefix, revokedAt }) =>
            revokedAt === null &&
            (name === flags.key || keyPrefix === flags.key || keyPrefix === `${flags.key}...`)
        )
        const [found, second] = byId.length > 0 ? byId : named
        if (found === undefined)
          return yield* failure(`There is no API key "${flags.key}"`, exitCodes.notFound)
        if (second !== undefined) {
          return yield* failure(
            `"${flags.key}" fits several keys; give the id: ${named.map(({ id }) => id).join(", ")}`,
            exitCodes.usage
          )
        }
        yield* confirmName(`What uses the key "${found.name}" stops working.`, found.name, flags.yes)
        const done = yield* call(asOwner.apikeys.revoke({ params: { orgId: org, keyId: found.id } }))
        yield* flags.json
          ? json({ id: found.id, ...done })
          : say(`"${found.name}" (${found.keyPrefix}) opens nothing any more`)
      })
    )
).pipe(Command.withDescription("Revoke an API key"))

export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of the organization"),
  Command.withSubcommands([keysLs, keysCreate, keysRevoke])
)

const grantsLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const grants = yield* call(asOwner.agentGrants.list({ params: { orgId: org } }))
      if (flags.json) return yield* json(grants)
      if (grants.length === 0) return yield* say("Nothing is granted to agents")
      yield* out(
        table(
          ["GRANT", "AGENT", "ROLE", "OPERATIONS", ""],
          grants.map(({ grantId, clientName, role, scopes, revokedAt }) => [
            grantId,
            clientName,
            role,
            String(scopes.length),
            state(revokedAt)
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List what was granted to agents"))

const grantsRevoke = Command.make(
  "revoke",
  { ...connection, grant: Argument.String("grant"), yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        yield* confirmName(`The agent of the grant ${flags.grant} is let in no more.`, flags.grant, flags.yes)
        yield* call(asOwner.agentGrants.revoke({ params: { orgId: org, grantId: flags.grant } }))
        yield* say("Revoked")
      })
    )
).pipe(Command.withDescription("Revoke a grant, by its id"))

export const grants = Command.make("grants").pipe(
  Command.withDescription("What agents were granted"),
  Command.withSubcommands([grantsLs, grantsRevoke])
)

export const audit = Command.make(
  "audit",
  {
    ...connection,
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(50)),
    operation: Flag.String("operation").pipe(Flag.withDescription("Such as caches.delete"), Flag.optional),
    principal: Flag.String("principal").pipe(Flag.withDescription("user:<id> or key:<id>"), Flag.optional),
    resource: Flag.String("resource").pipe(Flag.withDescription("Id of what it was done to"), Flag.optional),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const filter = {
          ...(Option.isSome(flags.operation) ? { operation: flags.operation.value } : {}),
          ...(Option.isSome(flags.principal) ? { principal: flags.principal.value } : {}),
          ...(Option.isSome(flags.resource) ? { resource: flags.resource.value } : {})
        }
        const read = (limit: number, cursor: string | null) =>
          call(
            asMember.audit.list({
              params: { orgId: org },
              query: { ...filter, limit: Math.min(limit, 100), ...(cursor === null ? {} : { cursor }) }
            })
          )
        let page = yield* read(flags.limit, null)
        const items = [...page.items]
        while (items.length < flags.limit && page.nextCursor !== null) {
          page = yield* read(flags.limit - items.length, page.nextCursor)
          items.push(...page.items)
        }
        if (flags.json) return yield* json(items)
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
    )
).pipe(Command.withDescription("Show who did what, and who was refused what"))
