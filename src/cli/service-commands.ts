/** `svc env`, `svc caches`, `svc database`. */
import * as fs from "node:fs/promises"
import { parseEnv } from "node:util"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, environment, online, project, readStdin, yes } from "./flags.ts"
import { json, out, say, table } from "./output.ts"

const place = { ...connection, project, environment }
interface Place {
  readonly project: string
  readonly environment: string
}
const at = (org: string, { project, environment }: Place) => ({
  params: { orgId: org, projectId: project },
  query: { environment }
})

const envLs = Command.make(
  "ls",
  {
    ...place,
    json: asJson,
    show: Flag.Boolean("show").pipe(Flag.withDescription("Print values too"), Flag.withDefault(false))
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const variables = yield* call(asMember.env.list(at(org, flags)))
        const shown = variables.map(({ key, value }) => ({ key, value: flags.show ? value : "****" }))
        yield* flags.json ? json(shown) : out(shown.map(({ key, value }) => `${key}=${value}`).join("\n"))
      })
    )
).pipe(Command.withDescription("List variables; values only with --show"))

const envSet = Command.make(
  "set",
  {
    ...place,
    key: Argument.String("key").pipe(
      Argument.withDescription("Name of one variable; its value comes from standard input"),
      Argument.optional
    ),
    fromFile: Flag.String("from-file").pipe(
      Flag.withDescription("Set every variable of a .env file"),
      Flag.optional
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const vars = yield* Option.match(flags.fromFile, {
          onSome: (file) =>
            Effect.tryPromise({
              try: async () =>
                Object.entries(parseEnv(await fs.readFile(file, "utf8"))).map(([key, value]) => ({
                  key,
                  value: value ?? ""
                })),
              catch: (cause) => failure(`Cannot read ${file}: ${String(cause)}`, exitCodes.usage)
            }),
          onNone: () =>
            Option.match(flags.key, {
              onNone: () =>
                Effect.fail(failure("Name a variable, or a file with --from-file", exitCodes.usage)),
              onSome: (key) =>
                key.includes("=")
                  ? Effect.fail(
                      failure(
                        "A value in an argument shows in the process list; pipe it: printf %s VALUE | svc env set PROJECT KEY",
                        exitCodes.usage
                      )
                    )
                  : Effect.map(readStdin, (value) => [{ key, value }])
            })
        })
        const { count } = yield* call(asOwner.env.set({ ...at(org, flags), payload: { vars } }))
        yield* say(`${count} set`)
      })
    )
).pipe(Command.withDescription("Set one variable from standard input, or many from a file"))

const envRm = Command.make("rm", { ...place, key: Argument.String("key") }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { params, query } = at(org, flags)
      yield* call(asMember.env.delete({ params: { ...params, key: flags.key }, query }))
      yield* say(`${flags.key} removed`)
    })
  )
).pipe(Command.withDescription("Remove a variable"))

export const env = Command.make("env").pipe(
  Command.withDescription("Variables of an environment"),
  Command.withSubcommands([envLs, envSet, envRm])
)

const cacheName = Argument.String("name").pipe(Argument.withDescription("Name or id of the cache"))
const findCache = Effect.fnUntraced(function* (flags: Place & { readonly name: string }) {
  const { asMember, org } = yield* Client
  const caches = yield* call(asMember.caches.list(at(org, flags)))
  const found = caches.find(({ id, name }) => id === flags.name || name === flags.name)
  return (
    found ??
    (yield* failure(
      `There is no cache "${flags.name}" in ${flags.project}/${flags.environment}`,
      exitCodes.notFound
    ))
  )
})
const cacheParams = (org: string, flags: Place, id: string) => ({
  params: { orgId: org, projectId: flags.project, cacheId: id },
  headers: {}
})

const sku = Flag.Literals("sku", ["cache-n1", "cache-s1", "cache-s2"]).pipe(
  Flag.withDescription("256 MB, 1 GB or 4 GB")
)
const persistence = Flag.Literals("persistence", ["aof", "none"]).pipe(Flag.optional)
const eviction = Flag.Literals("eviction-policy", [
  "allkeys-lru",
  "allkeys-lfu",
  "volatile-lru",
  "noeviction"
]).pipe(Flag.optional)
const settings = (flags: {
  readonly persistence: Option.Option<"aof" | "none">
  readonly eviction: Option.Option<"allkeys-lru" | "allkeys-lfu" | "volatile-lru" | "noeviction">
}) => ({
  ...(Option.isSome(flags.persistence) ? { persistence: flags.persistence.value } : {}),
  ...(Option.isSome(flags.eviction) ? { evictionPolicy: flags.eviction.value } : {})
})

const cachesLs = Command.make("ls", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const caches = yield* call(asMember.caches.list(at(org, flags)))
      if (flags.json) return yield* json(caches)
      yield* out(
        table(
          ["NAME", "STATUS", "SKU", "ADDRESS"],
          caches.map(({ name, status, sku, host, port }) => [
            name,
            status,
            sku,
            host === null ? "" : `${host}:${port}`
          ])
        )
      )
    })
  )
).pipe(Command.withDescription("List caches"))
const cachesGet = Command.make("get", { ...place, name: cacheName }, (flags) =>
  online(flags, Effect.flatMap(findCache(flags), json))
).pipe(Command.withDescription("Show a cache"))
const cachesCreate = Command.make(
  "create",
  {
    ...place,
    name: cacheName,
    sku: sku.pipe(Flag.withDefault("cache-n1" as const)),
    region: Flag.String("region").pipe(Flag.withDefault("local")),
    persistence,
    eviction
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        if (flags.region !== "local")
          return yield* failure(
            `There is no region "${flags.region}" here; this machine is "local"`,
            exitCodes.usage
          )
        const payload = {
          name: flags.name,
          sku: flags.sku,
          region: flags.region,
          ...settings(flags)
        } as const
        yield* json(yield* call(asMember.caches.create({ ...at(org, flags), headers: {}, payload })))
      })
    )
).pipe(Command.withDescription("Create a cache; its connection string is shown this once"))
const cachesUpdate = Command.make(
  "update",
  { ...place, name: cacheName, sku: sku.pipe(Flag.optional), persistence, eviction },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { id } = yield* findCache(flags)
        const payload = { ...settings(flags), ...(Option.isSome(flags.sku) ? { sku: flags.sku.value } : {}) }
        const answer = yield* call(asMember.caches.update({ ...cacheParams(org, flags, id), payload }))
        yield* json(answer.body)
      })
    )
).pipe(Command.withDescription("Change size, eviction or persistence"))
const cachesRotate = Command.make("rotate", { ...place, name: cacheName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id } = yield* findCache(flags)
      yield* json(yield* call(asMember.caches.rotateCredentials(cacheParams(org, flags, id))))
    })
  )
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))
const cachesRm = Command.make("rm", { ...place, name: cacheName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const { id, name } = yield* findCache(flags)
      yield* confirmName(`This deletes the cache "${name}" and its data.`, name, flags.yes)
      yield* call(asOwner.caches.delete(cacheParams(org, flags, id)))
      yield* say("Deletion is stored; svc status shows when it is done")
    })
  )
).pipe(Command.withDescription("Delete a cache and its data"))

export const caches = Command.make("caches").pipe(
  Command.withDescription("Redis-compatible caches"),
  Command.withSubcommands([cachesLs, cachesGet, cachesCreate, cachesUpdate, cachesRotate, cachesRm])
)

const databaseGet = Command.make("get", place, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const answer = yield* call(asMember.database.get(at(org, flags)))
      yield* json(answer.body)
    })
  )
).pipe(Command.withDescription("Show the database of an environment"))
const databaseProvision = Command.make("provision", place, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      yield* json(yield* call(asMember.database.provision({ ...at(org, flags), headers: {}, payload: {} })))
    })
  )
).pipe(Command.withDescription("Provision a database; its connection string is shown this once"))
const databaseRotate = Command.make("rotate", place, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      yield* json(yield* call(asMember.database.rotatePassword({ ...at(org, flags), headers: {} })))
    })
  )
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))
const databaseRm = Command.make("rm", { ...place, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      yield* confirmName(
        `This deletes the database of ${flags.project}/${flags.environment} and its data.`,
        flags.project,
        flags.yes
      )
      yield* call(asOwner.database.delete({ ...at(org, flags), headers: {} }))
      yield* say("Deletion is stored; svc status shows when it is done")
    })
  )
).pipe(Command.withDescription("Delete the database and its data"))

export const database = Command.make("database").pipe(
  Command.withDescription("The database of an environment"),
  Command.withSubcommands([databaseGet, databaseProvision, databaseRotate, databaseRm])
)
