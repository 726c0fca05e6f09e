/** A machine for managed cache servers in a temporary folder, and the ways in which tests look at it. */
import { createHash, createHmac } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { RedisClient } from "@redis/client"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as cache from "#reconcilers/cache/cache.ts"
import type { CacheSpec } from "#schemas/cache.ts"
import { AppConfig } from "#src/config.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import type { RedisEndpoint } from "#src/infra/redis/RedisControl.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { type Machine, machine, makeResource, passwordOf } from "./machine.ts"
import { managedPorts } from "./postgres.ts"
import { processesNaming } from "./processes.ts"

export type CacheWorld = Machine
export const cacheWorld = machine
export type CacheResource = Resource<CacheSpec>

/** A control plane's adapters over the world, built anew each time. */
export const cacheServices = ({ dataDir, secrets }: CacheWorld, host = Host.layer) =>
  RedisServers.layer.pipe(
    Layer.provideMerge(host),
    Layer.provideMerge(CertificateAuthority.layer),
    Layer.provideMerge(AppConfig.layerWith({ dataDir, managedPorts })),
    Layer.provideMerge(secrets.layer)
  )

export const cacheReconciler = (world: CacheWorld, host = Host.layer) =>
  cache.layer.pipe(Layer.provide(cacheServices(world, host)), Layer.provideMerge(Registry.layer))

/** A host on which no program is installed. */
export const bareHost = Layer.effect(
  Host,
  Effect.map(Host, (host) => ({ ...host, which: () => Effect.succeedNone }))
).pipe(Layer.provide(Host.layer))

export const makeCache = (world: CacheWorld, spec: Partial<CacheSpec> = {}): CacheResource =>
  makeResource(world, {
    kind: "Cache",
    name: "sessions",
    environment: "production",
    spec: {
      sku: "cache-n1",
      region: "local",
      persistence: "aof",
      evictionPolicy: "allkeys-lru",
      credentialVersion: 1,
      ...spec
    }
  })

export const folderOf = ({ dataDir }: CacheWorld, { uid }: { readonly uid: string }): string =>
  path.join(dataDir, "caches", uid)

/** What the adapter sees, through a control plane of its own. */
export const inspectCache = (world: CacheWorld, { uid }: CacheResource) =>
  Effect.flatMap(RedisServers, (servers) => servers.inspect(uid)).pipe(
    Effect.map(Option.getOrThrow),
    Effect.provide(cacheServices(world), { local: true })
  )

/** The control user's way in, worked out from the sealed key as the platform does it. */
export const controlOf = (world: CacheWorld, { uid }: { readonly uid: string }) =>
  Effect.gen(function* () {
    const key = yield* (yield* PlatformSecrets).ensure(
      "redis-control-key",
      Effect.die("no server was made yet")
    )
    const endpoint: RedisEndpoint = {
      socket: socketOf(world, uid),
      password: Redacted.make(
        createHmac("sha256", Redacted.value(key)).update(`redis-control/${uid}`).digest("base64url")
      )
    }
    return endpoint
  }).pipe(Effect.provide(world.secrets.layer, { local: true }))

export const socketOf = ({ dataDir }: CacheWorld, uid: string): string =>
  path.join(dataDir, "run", `${Buffer.from(uid.replaceAll("-", ""), "hex").toString("base64url")}.redis`)

export const authorityOf = (world: CacheWorld) =>
  Effect.map(CertificateAuthority, (authority) => authority.caPem).pipe(
    Effect.provide(cacheServices(world), { local: true })
  )

/** `createClient` would make this class anew for each client. */
const makeClient = RedisClient.factory({})

/** A client as an application would make it: TLS with verification against the platform's authority. */
export const appClient = (options: {
  readonly port: number
  readonly password: string
  readonly ca: string
  readonly user?: string
}) =>
  Effect.acquireRelease(
    Effect.tryPromise(async () => {
      const url = new URL(`rediss://127.0.0.1:${options.port}`)
      url.username = options.user ?? "svc"
      url.password = options.password
      const client = makeClient({
        url: url.href,
        socket: { tls: true, ca: options.ca, reconnectStrategy: false, connectTimeout: 5_000 }
      })
      client.on("error", () => undefined)
      await client.connect()
      return client
    }),
    (client) =>
      Effect.sync(() => {
        if (client.isOpen) client.destroy()
      })
  )

/** Equal for equal caches: identifiers, ports, digests and the names made from them are replaced by words. */
export const cacheSnapshot = (world: CacheWorld, resource: CacheResource) =>
  Effect.gen(function* () {
    const server = yield* inspectCache(world, resource)
    const password = passwordOf(world, resource)
    const plain = (text: string | undefined): string =>
      (text ?? "")
        .replaceAll(world.dataDir, "DATA")
        .replaceAll(resource.uid, "UID")
        .replaceAll(createHash("sha256").update(password).digest("hex"), "CURRENT-PASSWORD")
        .replaceAll(/[0-9a-f]{64}/g, "OTHER-DIGEST")
        .replaceAll(/tls-[\w-]+\.pem/g, "CERTIFICATE")
        .replaceAll(/[\w-]{22}\.redis/g, "SOCKET")
        // The last one, and as a whole word: a digest, or a size, may hold the same digits.
        .replaceAll(new RegExp(`\\b${server.port}\\b`, "g"), "PORT")
    const live = server.process._tag === "Running" ? server.process.live : undefined
    const signsIn = yield* Effect.scoped(
      Effect.gen(function* () {
        const client = yield* appClient({
          port: server.port ?? 0,
          password,
          ca: yield* authorityOf(world)
        })
        return yield* Effect.promise(() => client.ping())
      })
    ).pipe(Effect.orElseSucceed(() => "refused"))
    return {
      config: plain(server.config),
      users: plain(server.users),
      appendOnlyFile: server.appendOnlyFile,
      settings: [...(live?.settings ?? [])].map(([name, value]) => `${name} ${plain(value)}`).sort(),
      // The server lists rules in an order that differs from process to process.
      rules: [...(live?.users ?? [])]
        .map(([name, user]) => [name, user?.keys, user?.commands.split(" ").sort()])
        .sort(),
      signsIn
    }
  })

export const cacheRemains = (
  world: CacheWorld,
  { uid }: CacheResource
): Effect.Effect<ReadonlyArray<string>> =>
  Effect.sync(() => [
    ...[folderOf(world, { uid }), socketOf(world, uid)].filter((file) => fs.existsSync(file)),
    ...reservations(world)
      .filter(({ owner }) => owner.includes(uid))
      .map(({ port }) => `port ${port}`),
    ...processesNaming(uid).map(({ pid }) => `process ${pid}`)
  ])

export const reservations = ({ dataDir }: CacheWorld) => {
  const folder = path.join(dataDir, "ports")
  return (fs.existsSync(folder) ? fs.readdirSync(folder) : []).map((port) => ({
    port,
    owner: fs.readlinkSync(path.join(folder, port))
  }))
}
