/** `svc caches`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { CacheEvictionPolicy, CachePersistence } from "#schemas/cache.ts"
import { CacheSku, defaultRegion, regions } from "#schemas/catalog.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, at, confirmName, online, type Place, place, waiting, yes } from "./flags.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { deleted, showConnection } from "./service.ts"
import { waitForOne, whileShowing } from "./wait.ts"
import type { Summary } from "./watch.ts"

const cacheName = Argument.String("name").pipe(Argument.withDescription("Name or id of the cache"))
const find = Effect.fnUntraced(function* (flags: Place & { readonly name: string }) {
  const { asMember, org } = yield* Client
  const caches = yield* call(asMember.caches.list(at(org, flags)))
  const found =
    caches.find(({ id }) => id === flags.name) ??
    // What is being deleted gives way to what took its name.
    caches.filter(({ name }) => name === flags.name).sort((a, b) => b.createdAt.localeCompare(a.createdAt))[0]
  return (
    found ??
    (yield* failure(
      `There is no cache "${flags.name}" in ${flags.project}/${flags.environment}`,
      exitCodes.notFound
    ))
  )
})
const one = (org: string, flags: Place, id: string) => ({
  params: { orgId: org, projectId: flags.project, cacheId: id },
  headers: {}
})

const sku = Flag.Literals("sku", CacheSku.literals).pipe(Flag.withDescription("256 MB, 1 GB or 4 GB"))
const persistence = Flag.Literals("persistence", CachePersistence.literals).pipe(
  Flag.withDescription("Whether data outlives a restart"),
  Flag.optional
)
const eviction = Flag.Literals("eviction-policy", CacheEvictionPolicy.literals).pipe(
  Flag.withDescription("What a full cache gives up"),
  Flag.optional
)
const settings = (flags: {
  readonly persistence: Option.Option<typeof CachePersistence.Type>
  readonly eviction: Option.Option<typeof CacheEvictionPolicy.Type>
}) => ({
  ...(Option.isSome(flags.persistence) ? { persistence: flags.persistence.value } : {}),
  ...(Option.isSome(flags.eviction) ? { evictionPolicy: flags.eviction.value } : {})
})

const ls = Command.make("ls", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const caches = yield* call(asMember.caches.list(at(org, flags)))
      if (flags.json) return yield* json(caches)
      if (caches.length === 0)
        return yield* say(`There are no caches in ${flags.project}/${flags.environment}`)
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
).pipe(Command.withAlias("list"), Command.withDescription("List caches"))

const show = (cache: Effect.Success<ReturnType<typeof find>>) =>
  out(
    facts([
      ["Name", cache.name],
      ["Id", cache.id],
      ["Environment", cache.environment],
      ["Status", cache.status],
      ["Size", `${cache.sku} (${cache.memoryMb} MB)`],
      ["Region", cache.region],
      ["Persistence", cache.persistence],
      ["Eviction", cache.evictionPolicy],
      ["Address", cache.host === null ? "not started yet" : `${cache.host}:${cache.port}`],
      ["Created", cache.createdAt]
    ])
  )

const get = Command.make("get", { ...place, json: asJson, name: cacheName }, (flags) =>
  online(
    flags,
    Effect.flatMap(find(flags), (cache) => (flags.json ? json(cache) : show(cache)))
  )
).pipe(Command.withDescription("Show a cache"))

/** Whether a resource is the cache that a command is about. */
const isCache = (flags: Place & { readonly name: string }) => (resource: Summary) =>
  resource.kind === "Cache" &&
  resource.environment === flags.environment &&
  (resource.uid === flags.name || (resource.name === flags.name && resource.project === flags.project))

const create = Command.make(
  "create",
  {
    ...place,
    ...waiting,
    json: asJson,
    name: cacheName,
    sku: sku.pipe(Flag.withDefault("cache-n1" as const)),
    region: Flag.Literals("region", regions).pipe(Flag.withDefault(defaultRegion)),
    persistence,
    eviction
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { name, sku, region } = flags
        const payload = { name, sku, region, ...settings(flags) }
        const made = yield* whileShowing(
          call(asMember.caches.create({ ...at(org, flags), headers: {}, payload })),
          isCache(flags),
          flags
        )
        if (flags.wait && made.status !== "ready") yield* waitForOne(made.id, flags)
        yield* showConnection(
          { ...made, status: flags.wait ? "ready" : made.status },
          flags.json,
          `svc caches rotate ${flags.project} ${name} -e ${flags.environment}`
        )
      })
    )
).pipe(
  Command.withDescription("Create a cache; its connection string is shown this once"),
  Command.withExamples([
    { command: "svc caches create shop sessions --eviction-policy noeviction", description: "A small one" }
  ])
)

const update = Command.make(
  "update",
  {
    ...place,
    ...waiting,
    json: asJson,
    name: cacheName,
    sku: sku.pipe(Flag.optional),
    persistence,
    eviction
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const payload = { ...settings(flags), ...(Option.isSome(flags.sku) ? { sku: flags.sku.value } : {}) }
        if (Object.keys(payload).length === 0)
          return yield* failure(
            "Say what to change: --sku, --persistence, --eviction-policy",
            exitCodes.usage
          )
        const { id, name } = yield* find(flags)
        const answer = yield* call(asMember.caches.update({ ...one(org, flags, id), payload }))
        if (flags.wait) yield* waitForOne(id, flags)
        if (flags.json) return yield* json(flags.wait ? yield* find({ ...flags, name: id }) : answer.body)
        yield* say(flags.wait ? `${name} ${paint("green", "is changed")}` : `The change of ${name} is stored`)
      })
    )
).pipe(Command.withDescription("Change size, eviction or persistence"))

const rotate = Command.make("rotate", { ...place, ...waiting, json: asJson, name: cacheName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id } = yield* find(flags)
      const made = yield* whileShowing(
        call(asMember.caches.rotateCredentials(one(org, flags, id))),
        isCache({ ...flags, name: id }),
        flags
      )
      yield* showConnection(made, flags.json, "")
    })
  )
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))

const rm = Command.make("delete", { ...place, ...waiting, json: asJson, name: cacheName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const { id, name } = yield* find(flags)
      yield* confirmName(`This deletes the cache "${name}" and its data.`, name, flags.yes)
      yield* call(asOwner.caches.delete(one(org, flags, id)))
      yield* deleted(id, `${flags.project}/${flags.environment}/Cache/${name}`, flags)
    })
  )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a cache and its data"))

export const caches = Command.make("caches").pipe(
  Command.withDescription("Redis-compatible caches"),
  Command.withSubcommands([ls, get, create, update, rotate, rm])
)
