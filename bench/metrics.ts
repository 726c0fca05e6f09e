/**
 * What it costs to look at 200 servers: real Redis servers of 2 MB in control groups of their own, with the processor time
 * and the memory of the process that looks. Held against the libraries' clients with the same questions, and for a
 * database against a connection that is kept.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Host } from "#src/infra/host/Host.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { controlCommands, controlUser, pidName } from "#src/infra/redis/settings.ts"
import { makeLook } from "#src/metrics/host/look.ts"
import { askPostgres } from "#src/metrics/host/postgres-question.ts"
import { MetricSamples } from "#src/metrics/MetricSamples.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import { inspectDatabase, makeDatabase, settleDatabase } from "#test/setup/databases.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { machine } from "#test/setup/machine.ts"
import { managedPorts } from "#test/setup/postgres.ts"
import { cpuBelow } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"

const servers = 200
const looks = 20
const everySeconds = 15

/** Milliseconds of processor time of this process that something takes, as the median of repeated runs. */
const cpuMs = <E, R>(times: number, body: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const spent: Array<number> = []
    for (let i = 0; i < times; i++) {
      const before = process.cpuUsage()
      yield* body
      const { system, user } = process.cpuUsage(before)
      spent.push((system + user) / 1000)
    }
    return median(spent)
  })

/** One like those that the platform makes, as far as a look can tell. */
const startCache = Effect.fnUntraced(function* (uid: string) {
  const host = yield* Host
  const { socket, password } = (yield* RedisServers).endpoint(uid)
  const dir = path.join(host.dataDir, "caches", uid)
  yield* host.directory(dir)
  const digest = createHash("sha256").update(Redacted.value(password)).digest("hex")
  const config = [
    `dir ${dir}`,
    `pidfile ${path.join(dir, pidName)}`,
    `unixsocket ${socket}`,
    "port 0",
    'save ""',
    "set-proc-title no",
    `user ${controlUser} on #${digest} ${controlCommands.join(" ")}`
  ]
  yield* host.writeFile(path.join(dir, "redis.conf"), `${config.join("\n")}\n`)
  yield* host.spawn({
    command: "/usr/bin/redis-server",
    args: [path.join(dir, "redis.conf")],
    cwd: dir,
    logFile: path.join(dir, "server.log"),
    limits: { name: uid, limits: { memoryBytes: 64 * 2 ** 20, cpus: 1, processes: 32 } }
  })
})

const caches = (url: string) =>
  Effect.gen(function* () {
    const { dataDir, secrets } = yield* machine
    const services = Layer.mergeAll(
      MetricSamples.layer,
      RedisServers.layer,
      ContainerEngine.layer,
      Installation.layer
    ).pipe(
      Layer.provideMerge(Host.layer),
      Layer.provideMerge(AppConfig.layerWith({ dataDir, managedPorts, containerSocket: "none" })),
      Layer.provideMerge(secrets.layer),
      Layer.provideMerge(Db.layer({ url: Redacted.make(url) }))
    )
    return yield* Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const org = uuid()
      yield* sql`insert into organization (id, name, slug, billing_status) values (${org}::uuid, 'bench', 'bench', 'active')`
      const uids = Array.from({ length: servers }, uuid)
      yield* sql`
        insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by)
        select ${org}::uuid, u, 'Cache', ${uuid()}::uuid, u::text, ${uuid()}::uuid, '{}', 'api'
        from unnest(${uids}::uuid[]) u`
      yield* Effect.addFinalizer(() => Effect.flatMap(Host, ({ holding }) => Effect.ignore(holding.leave)))
      yield* Effect.forEach(uids, startCache, { concurrency: 8 })
      yield* Effect.sleep("3 seconds")
      const folder = path.join(dataDir, "metrics")
      fs.mkdirSync(folder)
      const { record } = yield* MetricSamples
      globalThis.gc?.()
      const heapBefore = process.memoryUsage().heapUsed
      const look = yield* makeLook(folder)
      const take = Effect.flatMap(look.take, record)
      const walk = yield* cpuMs(1, look.walk)
      // The first ones are for the compilers of Node, as in a process that has run for a while.
      for (let i = 0; i < 5; i++) yield* take
      const samples = yield* look.take
      const complete = samples.filter(
        ({ values }) => values["redis.clients"] !== undefined && values["cpu.percent"] !== undefined
      ).length
      const began = performance.now()
      const spent = yield* cpuMs(looks, look.take)
      const wall = (performance.now() - began) / looks
      const recorded = yield* cpuMs(looks, record(samples))
      globalThis.gc?.()
      const heap = (process.memoryUsage().heapUsed - heapBefore) / 1e6
      const { createClient } = yield* Effect.promise(() => import("@redis/client"))
      const model = createClient({ RESP: 2, disableClientInfo: true, maintNotifications: "disabled" })
      const { endpoint } = yield* RedisServers
      const byLibrary = yield* cpuMs(
        5,
        Effect.promise(async () => {
          for (const uid of uids) {
            const { socket, password } = endpoint(uid)
            const client = model.duplicate({
              username: controlUser,
              password: Redacted.value(password),
              socket: { path: socket, tls: false, reconnectStrategy: false }
            })
            client.on("error", () => undefined)
            await client.connect()
            await client.sendCommand(["INFO", "server", "clients", "memory", "stats"])
            client.destroy()
          }
        })
      )
      return { byLibrary, complete, heap, recorded, spent, walk, wall }
    }).pipe(Effect.provide(services))
  }).pipe(Effect.scoped)

const database = Effect.gen(function* () {
  const world = yield* machine
  const resource = makeDatabase(world)
  yield* settleDatabase(world, resource)
  const { port = 0, process: server } = yield* inspectDatabase(world, resource)
  const pid = server._tag === "Stopped" ? 0 : server.pid
  const socketDir = path.join(world.dataDir, "run")
  /** With its children that have ended. */
  const ofServer = () => {
    const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    return (cpuBelow(pid) + (Number(fields[13]) + Number(fields[14])) / 100) * 1000
  }
  const ask = askPostgres({ socketDir, port })
  for (let i = 0; i < 20; i++) yield* ask
  /** As many as there are servers, as side by side as in a look. */
  const asMany = <E, R>(body: Effect.Effect<unknown, E, R>) =>
    Effect.map(
      cpuMs(
        5,
        Effect.forEach(
          Array.from({ length: servers }, () => body),
          (one) => one,
          { concurrency: 16, discard: true }
        )
      ),
      (ms) => ms / servers
    )
  const before = ofServer()
  const own = yield* asMany(ask)
  const asked = (ofServer() - before) / (5 * servers)
  const sql = postgres({
    host: socketDir,
    port,
    database: "postgres",
    username: "svc_control",
    max: 1,
    fetch_types: false
  })
  const [{ pid: backend }] = yield* Effect.promise(
    () => sql<[{ pid: number }]>`select pg_backend_pid() as pid`
  )
  for (let i = 0; i < 20; i++) yield* Effect.promise(() => sql`select * from pg_stat_activity`)
  const status = fs.readFileSync(`/proc/${backend}/status`, "utf8")
  const keptMb = (Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) * 1024) / 1e6
  yield* Effect.promise(() => sql.end())
  const byLibrary = yield* asMany(
    Effect.promise(async () => {
      const one = postgres({
        host: socketDir,
        port,
        database: "postgres",
        username: "svc_control",
        max: 1,
        fetch_types: false,
        prepare: false
      })
      await one`select count(*) from pg_stat_activity`
      await one.end({ timeout: 1 })
    })
  )
  return { asked, byLibrary, keptMb, own }
}).pipe(Effect.scoped)

export const metrics = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const found = await Effect.runPromise(caches(url))
  const postgresFound = await Effect.runPromise(database)
  const share = (ms: number) => ms / 10 / everySeconds
  return [
    { name: "caches with all measurements", value: found.complete, unit: "", aim: `${servers}` },
    {
      name: `a look at ${servers} caches, processor time`,
      value: found.spent,
      unit: "ms",
      note: `${found.wall.toFixed(0)} ms on the clock`
    },
    { name: "recording it, in this process", value: found.recorded, unit: "ms" },
    {
      name: `both, every ${everySeconds} s, of a core`,
      value: share(found.spent + found.recorded),
      unit: "%",
      aim: "<= 1"
    },
    { name: "heap that it takes", value: found.heap, unit: "MB", aim: "<= 20" },
    { name: "the questions alone through @redis/client", value: found.byLibrary, unit: "ms" },
    { name: "a walk through the folders, in this process", value: found.walk, unit: "ms" },
    { name: "a question to a database, here", value: postgresFound.own, unit: "ms" },
    { name: "the same through the library", value: postgresFound.byLibrary, unit: "ms" },
    {
      name: `${servers} databases every ${everySeconds} s, of a core, here`,
      value: share(postgresFound.own * servers),
      unit: "%",
      aim: "<= 1"
    },
    {
      name: "a question, processor time of the database",
      value: postgresFound.asked,
      unit: "ms",
      note: `${share(postgresFound.asked).toFixed(3)} % of a core for each database`
    },
    { name: "memory of a connection that is kept instead", value: postgresFound.keptMb, unit: "MB" }
  ]
}
