/** `svc caches`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { CacheEvictionPolicy, CachePersistence, CacheSpec } from "#schemas/cache.ts"
import { CacheSku } from "#schemas/catalog.ts"
import { call } from "#src/cli/client.ts"
import { waiting } from "#src/cli/flags.ts"
import { region, regionOr } from "#src/cli/region.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { showConnection } from "#src/cli/service.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne, whileShowing } from "#src/cli/wait.ts"
import type { Summary } from "#src/cli/watch.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the cache"))
const { command, on, ls, get, update, remove } = resourceCommands({
  scope: inEnvironment,
  noun: "cache",
  plural: "caches",
  argument: name,
  list: ({ asMember }, at) => asMember.caches.list(at),
  nameOf: (cache) => cache.name,
  one: ({ params }, { id }) => ({ params: { ...params, cacheId: id }, headers: {} })
})

const sku = Flag.Literals("sku", CacheSku.literals).pipe(Flag.withDescription("256 MB, 1 GB or 4 GB"))
const defaults = Schema.decodeUnknownSync(Schema.Struct({ sku: CacheSpec.fields.sku }))({})
const optional = {
  persistence: Flag.Literals("persistence", CachePersistence.literals).pipe(
    Flag.withDescription("Whether data outlives a restart"),
    Flag.optional
  ),
  evictionPolicy: Flag.Literals("eviction-policy", CacheEvictionPolicy.literals).pipe(
    Flag.withDescription("What a full cache gives up"),
    Flag.optional
  )
}

const list = ls({
  columns: {
    NAME: (cache) => cache.name,
    STATUS: ({ status }) => status,
    SKU: (cache) => cache.sku,
    ADDRESS: ({ host, port }) => (host === null ? "" : `${host}:${port}`)
  }
})

const show = get((cache) => [
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

/** Whether a resource is the cache that a command is about. */
const isCache =
  (where: { readonly project: string; readonly environment: string }, named: string) => (resource: Summary) =>
    resource.kind === "Cache" &&
    resource.environment === where.environment &&
    (resource.uid === named || (resource.name === named && resource.project === where.project))

const create = command(
  "create",
  {
    ...waiting,
    name,
    sku: sku.pipe(Flag.withDefault(defaults.sku)),
    region,
    optional
  },
  ({ client, at, where, json, flags }) =>
    Effect.gen(function* () {
      const { name, sku } = flags
      const environment = yield* at
      const payload = {
        name,
        sku,
        region: yield* regionOr(flags.region, environment.params),
        ...given(flags.optional)
      }
      const made = yield* whileShowing(
        call(client.asMember.caches.create({ ...environment, headers: {}, payload })),
        isCache(where, name),
        flags
      )
      if (flags.wait && made.status !== "ready") yield* waitForOne(made.id, flags)
      yield* showConnection(
        { ...made, status: flags.wait ? "ready" : made.status },
        json,
        `svc caches rotate ${where.project} ${name} -e ${where.environment}`
      )
    })
).pipe(
  Command.withDescription("Create a cache; its connection string is shown this once"),
  Command.withExamples([
    { command: "svc caches create shop sessions --eviction-policy noeviction", description: "A small one" }
  ])
)

const change = update({
  settings: { sku: sku.pipe(Flag.optional), ...optional },
  waits: true,
  payload: (settings) => Effect.succeed(settings),
  send: ({ asMember }, request) => asMember.caches.update(request),
  changed: ({ body }) => body
}).pipe(Command.withDescription("Change size, eviction or persistence"))

const rotate = on("rotate", waiting, ({ item, one }, { client, where, json, flags }) =>
  Effect.gen(function* () {
    const made = yield* whileShowing(
      call(client.asMember.caches.rotateCredentials(one)),
      isCache(where, item.id),
      flags
    )
    yield* showConnection(made, json, "")
  })
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))

const rm = remove({
  warning: (name) => `This deletes the cache "${name}" and its data.`,
  send: ({ asOwner }, one) => asOwner.caches.delete(one),
  address: ({ name }, { project, environment }) => `${project}/${environment}/Cache/${name}`
}).pipe(Command.withDescription("Delete a cache and its data"))

export const caches = Command.make("caches").pipe(
  Command.withDescription("Redis-compatible caches"),
  Command.withSubcommands([list, show, create, change, rotate, rm])
)
