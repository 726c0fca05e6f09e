/** Real servers and a real container on one machine, and what a look tells of them. */
import * as fs from "node:fs"
import * as path from "node:path"
import { afterAll, assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { AppConfig } from "#src/config.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Host } from "#src/infra/host/Host.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { makeLook } from "#src/metrics/host/look.ts"
import { MetricSamples, type Values } from "#src/metrics/MetricSamples.ts"
import { Db } from "#src/store/Db.ts"
import { reachGoal } from "#test/reconcilers/settle.ts"
import {
  appClient,
  authorityOf,
  type CacheResource,
  cacheReconciler,
  inspectCache,
  makeCache
} from "#test/setup/caches.ts"
import { containerEngine, sh } from "#test/setup/containers.ts"
import { testDb } from "#test/setup/database.ts"
import { asApplication } from "#test/setup/databases.ts"
import { makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { machine, passwordOf } from "#test/setup/machine.ts"
import { managedPorts } from "#test/setup/postgres.ts"
import { freeze, makeReplicated, postmaster, settle } from "#test/setup/replicas.ts"
import { eventually } from "#test/setup/wait.ts"

const scope = Scope.makeUnsafe()
afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

const settleCache = (world: Effect.Success<typeof machine>, resource: CacheResource) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("Cache")!
    yield* reachGoal(reconciler, resource, 240_000)
  }).pipe(Effect.provide(cacheReconciler(world), { local: true }))

const store = (resource: Resource) =>
  Effect.flatMap(Db, ({ engine: sql }) =>
    Effect.orDie(sql`
      insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by)
      values (${resource.orgId}::uuid, ${resource.uid}::uuid, ${resource.kind}, ${resource.projectId}::uuid, ${resource.name},
        ${uuid()}::uuid, '{}', 'api')`)
  )

/** A database with two standbys, and a cache. */
const makeWorld = Effect.gen(function* () {
  const servers = yield* machine
  const engine = yield* containerEngine
  const context = yield* Layer.build(
    Layer.mergeAll(MetricSamples.layer, RedisServers.layer, ContainerEngine.layer, Installation.layer).pipe(
      Layer.provideMerge(Host.layer),
      Layer.provideMerge(
        AppConfig.layerWith({ dataDir: servers.dataDir, managedPorts, containerSocket: engine.socket })
      ),
      Layer.provideMerge(servers.secrets.layer),
      Layer.provideMerge(testDb())
    )
  )
  return yield* Effect.gen(function* () {
    const { id: orgId } = yield* makeOrganization()
    const [database, cache] = [makeReplicated(servers), makeCache(servers)]
    const both = { database: { ...database, orgId }, cache: { ...cache, orgId } }
    for (const [made, one] of [
      [database, both.database],
      [cache, both.cache]
    ] as const) {
      servers.secrets.write(
        { orgId, uid: one.uid, field: "password" },
        Redacted.make(passwordOf(servers, made))
      )
      yield* store(one)
    }
    yield* Effect.all([settle(servers, both.database), settleCache(servers, both.cache)], { concurrency: 2 })
    const folder = path.join(servers.dataDir, "metrics")
    fs.mkdirSync(folder)
    const look = yield* makeLook(folder)
    yield* look.walk
    return { ...both, orgId, servers, engine, context, folder, look }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof makeWorld>
const shared = Effect.runSync(Effect.cached(Scope.provide(makeWorld, scope)))

const valuesOf = ({ look }: World, { uid }: { readonly uid: string }) =>
  Effect.map(look.take, (samples): Values => samples.find((one) => one.uid === uid)?.values ?? {})

const between = (values: Values, name: keyof Values, least: number, most: number) => {
  const value = values[name]
  assert.isDefined(value, `${name} is measured`)
  assert.isAtLeast(value ?? Number.NaN, least, name)
  assert.isAtMost(value ?? Number.NaN, most, name)
}
const MiB = 2 ** 20

it.live("a database's server tells of its sessions, statements and log, and the machine of its use", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const { database, servers, look } = world
    const first = yield* valuesOf(world, database)
    assert.isUndefined(first["cpu.percent"], "nobody knows yet since when")
    assert.isUndefined(first["database.queries_per_second"])
    assert.isUndefined(first["database.query_latency_p95_ms"], "Postgres keeps no distribution")

    yield* asApplication(servers, database, async (sql) => {
      await sql`create table numbers as select generate_series(1, 200000) as n`
      for (let i = 0; i < 20; i++) await sql`select sum(n * n::numeric) from numbers`
      const values = await Effect.runPromise(
        eventually(
          "two looks are apart",
          valuesOf(world, database),
          (one) => one["cpu.percent"] !== undefined && one["database.query_latency_avg_ms"] !== undefined
        )
      )
      between(values, "database.connections", 1, 1)
      between(values, "database.connections_limit", 22, 22)
      between(values, "database.pool_saturation", 100 / 22 - 0.01, 100 / 22 + 0.01)
      between(values, "database.pool_waiting", 0, 0)
      between(values, "database.queries_per_second", 0.1, 10_000)
      between(values, "database.query_latency_avg_ms", 0.5, 60_000)
      between(values, "database.wal_bytes", 1_000, 1e9)
      between(values, "database.archive_failing", 0, 0)
      between(values, "database.replication_lag_bytes", 0, 1e9)
      between(values, "database.replication_lag_seconds", 0, 240)
      between(values, "cpu.percent", 0.1, 6_400)
      between(values, "cpu.pressure", 0.1, 200)
      between(values, "memory.used_bytes", MiB, 512 * MiB)
      between(values, "memory.pressure", 0.1, 100)
      between(values, "disk.used_bytes", 10 * MiB, 1e10)
      between(values, "storage.capacity", 0.0001, 100)
      between(values, "runtime.processes", 5, 100)
      between(values, "runtime.uptime_seconds", 0, 3_600)
      between(values, "runtime.restarts", 0, 0)
      between(values, "standby1.memory.used_bytes", 100_000, 512 * MiB)
      between(values, "standby2.database.connections", 0, 0)
      between(values, "standby2.cpu.percent", 0, 6_400)
    })
    const { bsize, blocks, bfree, bavail } = fs.statfsSync(servers.dataDir)
    const values = yield* valuesOf(world, database)
    assert.strictEqual(values["disk.limit_bytes"], (blocks - bfree + bavail) * bsize)
    assert.isUndefined((yield* look.take)[0]?.values["database.unavailable"], "that is the store's to tell")
  })
)

it.live("sessions that wait for another's lock are counted", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const { database, servers } = world
    yield* asApplication(servers, database, async (holder) => {
      await holder`create table contested (n int)`
      const waiting = await holder.begin(async (held) => {
        await held`lock table contested`
        const waiter = Effect.runPromiseExit(
          asApplication(servers, database, (sql) => sql`select count(*) from contested`)
        )
        await Effect.runPromise(
          eventually(
            "a session waits",
            valuesOf(world, database),
            (values) => values["database.pool_waiting"] === 1 && values["database.connections"] === 2
          )
        )
        return { waiter }
      })
      assert.isTrue(Exit.isSuccess(await waiting.waiter))
    })
  })
)

it.live("a cache tells of what was found, of clients and of its memory", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const { cache, servers } = world
    const server = yield* inspectCache(servers, cache)
    const client = yield* appClient({
      port: server.port ?? 0,
      password: passwordOf(servers, cache),
      ca: yield* authorityOf(servers)
    })
    const first = yield* valuesOf(world, cache)
    between(first, "redis.clients", 1, 1)
    yield* Effect.promise(() => client.set("there", "x".repeat(100_000)))
    const read = Effect.promise(async () => {
      for (let i = 0; i < 5; i++) await client.get(i === 0 ? "not there" : "there")
    })
    const values = yield* eventually(
      "the counters of two looks are apart",
      Effect.andThen(read, valuesOf(world, cache)),
      (one) => (one["redis.hits"] ?? 0) > 0 && one["cpu.percent"] !== undefined
    )
    const { "redis.hits": hits = 0, "redis.misses": misses = 0 } = values
    assert.closeTo(hits / misses, 4, 0.01)
    between(values, "redis.evictions", 0, 0)
    between(values, "network.transmit_bytes", 1_000, 1e9)
    between(values, "redis.used_memory_bytes", 100_000, 256 * MiB)
    between(values, "redis.memory_limit_bytes", 256 * MiB, 256 * MiB)
    between(values, "memory.used_bytes", MiB / 4, 256 * MiB)
    between(values, "cpu.percent", 0, 6_400)
    between(values, "disk.used_bytes", 1_000, 1e9)
  }).pipe(Effect.scoped)
)

it.live("a container's processor, memory and network are told by its own groups and its own network", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const execution = { uid: uuid() }
    yield* Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const installation = yield* Installation
      const name = installation.nameOf(execution.uid)
      const { id } = yield* engine.pull({ reference: world.engine.openImage, credentials: undefined }, 60_000)
      yield* engine.create({
        name,
        labels: {
          ...installation.labels,
          "svc.organization": world.orgId,
          "svc.execution": execution.uid
        },
        image: id,
        command: sh("while :; do :; done"),
        env: Redacted.make({}),
        cpus: 0.5,
        cpuShares: 512,
        memoryMb: 64,
        network: { kind: "isolated" },
        runtime: undefined
      })
      yield* Effect.addFinalizer(() => Effect.orDie(engine.remove(name)))
      yield* engine.run(name, {})
      const values = yield* eventually(
        "it keeps its share of a processor busy",
        valuesOf(world, execution),
        (one) => (one["cpu.pressure"] ?? 0) > 20
      )
      between(values, "cpu.percent", 10, 75)
      between(values, "cpu.pressure", 20, 150)
      between(values, "memory.limit_bytes", 64 * MiB, 64 * MiB)
      between(values, "memory.used_bytes", 1, 64 * MiB)
      between(values, "network.receive_bytes", 0, 1e9)
      between(values, "network.transmit_bytes", 0, 1e9)
      between(values, "runtime.processes", 1, 10)
      between(values, "runtime.uptime_seconds", 0, 3_600)
      assert.isUndefined(values["disk.used_bytes"])
    }).pipe(Effect.provide(world.context), Effect.scoped)
    assert.deepStrictEqual(yield* valuesOf(world, execution), {}, "it is gone")
  })
)

it.live("a server that hangs keeps nobody else's measurements back, and its own use is told still", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const { cache, database, look, servers } = world
    const goOn = freeze(postmaster(servers, database))
    yield* Effect.gen(function* () {
      // The second time it is not asked at all.
      for (let i = 0; i < 2; i++) {
        const samples = yield* look.take
        const of = (uid: string): Values => samples.find((one) => one.uid === uid)?.values ?? {}
        assert.isUndefined(of(database.uid)["database.connections"])
        between(of(database.uid), "memory.used_bytes", MiB, 512 * MiB)
        between(of(database.uid), "standby1.database.connections", 0, 0)
        between(of(cache.uid), "redis.clients", 0, 5)
      }
    }).pipe(Effect.ensuring(Effect.sync(goOn)))
  })
)

it.live("a server that was started again says so, also to the next control plane", () =>
  Effect.gen(function* () {
    const world = yield* shared
    const { cache, context, folder, servers } = world
    between(yield* valuesOf(world, cache), "runtime.restarts", 0, 0)
    const { process: before } = yield* inspectCache(servers, cache)
    process.kill(before._tag === "Stopped" ? 0 : before.pid, "SIGKILL")
    yield* eventually(
      "it is not there",
      valuesOf(world, cache),
      (values) => values["runtime.uptime_seconds"] === undefined
    )
    const down = yield* valuesOf(world, cache)
    assert.isUndefined(down["memory.used_bytes"])
    assert.isUndefined(down["redis.clients"])
    between(down, "runtime.restarts", 0, 0)

    yield* settleCache(servers, cache)
    const values = yield* valuesOf(world, cache)
    between(values, "runtime.restarts", 1, 1)
    assert.isUndefined(values["cpu.percent"], "its counters have begun anew")
    const next = yield* makeLook(folder).pipe(Effect.provide(context))
    between(yield* valuesOf({ ...world, look: next }, cache), "runtime.restarts", 1, 1)
  })
)

it.live("what a look has seen is recorded", () =>
  Effect.gen(function* () {
    const { context, database, look, orgId } = yield* shared
    yield* Effect.gen(function* () {
      const { record } = yield* MetricSamples
      yield* record(yield* look.take)
      const { engine: sql } = yield* Db
      const [row] = yield* sql<{ values: Values; source: string }>`
        select values, source from metric_now where org_id = ${orgId}::uuid and uid = ${database.uid}::uuid`
      assert.strictEqual(row?.source, "host")
      between(row?.values ?? {}, "runtime.uptime_seconds", 0, 3_600)
    }).pipe(Effect.provide(context))
  })
)
