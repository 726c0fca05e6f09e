/**
 * What becomes of data whose folder is away for a while, on real servers: nothing is made in its place, and it is there
 * again when the folder is. An operator pauses what is on a disk before the disk is taken out.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { askRows } from "#src/infra/postgres/PostgresControl.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  asServer,
  type BranchWorld,
  branchReconciler,
  branchWorld,
  makeBranch
} from "#test/setup/branches.ts"
import * as caches from "#test/setup/caches.ts"
import {
  asApplication,
  type DatabaseResource,
  databaseReconciler,
  databaseWorld,
  folderOf,
  inspectDatabase,
  makeDatabase
} from "#test/setup/databases.ts"
import { passwordOf } from "#test/setup/machine.ts"
import { memoryEngine } from "#test/setup/memory-engine.ts"
import { managedPorts } from "#test/setup/postgres.ts"
import { killNaming, processesNaming } from "#test/setup/processes.ts"
import { becomesTrue, fill, makeReplicated, rowsIn, standby } from "#test/setup/replicas.ts"

const minutes = (count: number) => ({ timeout: count * 60_000, concurrent: true })

type Engine = Effect.Success<ReturnType<typeof memoryEngine>>

/** What names a folder also runs in it. */
const stopped = (folder: string) =>
  Effect.andThen(
    Effect.sync(() => killNaming(folder)),
    becomesTrue(
      "what ran in the folder has ended",
      Effect.sync(() => processesNaming(folder).length === 0)
    )
  )
const takenAway = (folder: string) =>
  Effect.as(
    Effect.sync(() => fs.renameSync(folder, `${folder}.away`)),
    Effect.sync(() => fs.renameSync(`${folder}.away`, folder))
  )
const ready = ({ condition }: Engine) => condition("Ready")?.status
const whyNot = ({ condition }: Engine) => condition("Ready")?.reason
/** A status of a release that knew other fields. */
const forgetStatus = (engine: Engine) =>
  Effect.sync(() => {
    engine.row().status = { of: "another release" }
  })

it.live(
  "a database whose folder went away while it was paused is lost, not empty; data of another one is not taken for its own",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const [mine, other] = [makeDatabase(world), makeDatabase(world)]
      const folder = folderOf(world, mine)
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(mine)
        // It is stored that there is data before anybody could have written any.
        yield* engine.runUntil("there is data", () => "lineage" in engine.row().facts)
        assert.lengthOf(processesNaming(folder), 0, "the server is not started yet")
        yield* engine.ready
        const { port = 0 } = yield* inspectDatabase(world, mine)
        assert.deepStrictEqual(
          yield* askRows(
            { socketDir: path.join(world.dataDir, "run"), port },
            "select system_identifier::text as identifier from pg_control_system()"
          ),
          [{ identifier: engine.row().facts["systemIdentifier"] }]
        )
        yield* fill(world, mine)
        yield* engine.pause
        yield* stopped(folder)
        const putBack = yield* takenAway(folder)
        yield* engine.run
        assert.deepStrictEqual([engine.row().phase, ready(engine)], ["waiting", "false"])
        assert.deepInclude(engine.row().status, { dbName: "app" }, "the last status stays")
        yield* engine.resume
        yield* engine.run
        assert.deepStrictEqual([ready(engine), whyNot(engine)], ["false", "DataLost"])
        yield* forgetStatus(engine)
        yield* engine.run
        assert.strictEqual(whyNot(engine), "DataLost")
        assert.isFalse(fs.existsSync(folder), "the place is free for the folder")
        yield* putBack
        yield* engine.ready
        assert.strictEqual(yield* rowsIn(world, mine), 1000)

        // Only the data, of a server whose other files are there.
        const dataOf = (resource: DatabaseResource) => path.join(folderOf(world, resource), "data")
        yield* stopped(folder)
        const dataBack = yield* takenAway(dataOf(mine))
        yield* forgetStatus(engine)
        yield* engine.run
        assert.strictEqual(whyNot(engine), "DataLost")
        assert.isFalse(fs.existsSync(dataOf(mine)))

        // Another's in its place is neither started nor given a password.
        const another = yield* memoryEngine(other)
        yield* another.ready
        yield* engine.pause
        yield* stopped(folderOf(world, other))
        fs.renameSync(dataOf(other), dataOf(mine))
        yield* engine.run
        assert.strictEqual(engine.row().phase, "waiting")
        yield* engine.resume
        yield* engine.run
        assert.deepStrictEqual([ready(engine), whyNot(engine)], ["false", "WrongData"])
        yield* engine.run
        assert.strictEqual(whyNot(engine), "WrongData")
        assert.lengthOf(processesNaming(folder), 0, "nothing was started")
        fs.renameSync(dataOf(mine), dataOf(other))
        yield* dataBack
        yield* engine.ready
        yield* another.ready
        assert.strictEqual(yield* rowsIn(world, mine), 1000)
      }).pipe(Effect.provide(databaseReconciler(world)))
    }).pipe(Effect.scoped),
  minutes(10)
)

campaign(
  it.live,
  "standby-lost-data",
  "why a standby cannot be made is told; with all folders away nothing is made anew, and the standby that comes back takes over",
  { rounds: 0, roundMs: 720_000 },
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world, { replicas: 0 })
      const all = [resource, standby(world, resource, 1), standby(world, resource, 2)]
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(resource)
        yield* engine.ready
        yield* fill(world, resource)

        // The database stays ready; the condition, the history and the last error tell it.
        const ports = path.join(world.dataDir, "ports")
        const free: Array<string> = []
        for (let port = managedPorts.first; port <= managedPorts.last; port++) {
          const file = path.join(ports, String(port))
          if (fs.readdirSync(ports).includes(String(port))) continue
          fs.symlinkSync("somebody-else", file)
          free.push(file)
        }
        yield* engine.update({ ...resource.spec, replicas: 2 })
        yield* engine.runUntil("it has tried", () => engine.work()?.lastError !== null)
        assert.deepStrictEqual([engine.row().phase, ready(engine)], ["ready", "true"])
        assert.match(engine.work()?.lastError ?? "", /^Standby 1: Every port from .* is taken/)
        assert.match(engine.condition("Ready")?.message ?? "", /Every port from .* is taken/)
        assert.match(engine.events("ReplicaFailing")[0]?.message ?? "", /Every port from .* is taken/)
        for (const file of free) fs.rmSync(file)
        yield* engine.runUntil("nothing fails any more", () => engine.work()?.lastError === null)
        assert.strictEqual(ready(engine), "true")

        const streaming = () => {
          const status = JSON.stringify(engine.row().status)
          return status.match(/"streaming"/g)?.length === 2
        }
        yield* engine.runUntil("both stream", streaming)
        yield* becomesTrue(
          "standby 1 has the rows",
          Effect.map(rowsIn(world, standby(world, resource, 1)), (n) => n === 1000)
        )
        yield* engine.pause
        const back = []
        for (const one of all) {
          yield* stopped(folderOf(world, one))
          back.push(yield* takenAway(folderOf(world, one)))
        }
        yield* engine.run
        yield* engine.resume
        yield* engine.run
        yield* forgetStatus(engine)
        yield* engine.run
        assert.strictEqual(whyNot(engine), "DataLost")
        for (const one of all) assert.isFalse(fs.existsSync(folderOf(world, one)))
        yield* back[1]!
        yield* engine.runUntil("a standby takes over", () => ready(engine) === "true")
        assert.strictEqual(yield* rowsIn(world, resource), 1000)
      }).pipe(Effect.provide(databaseReconciler(world)))
    }).pipe(Effect.scoped)
)

it.live(
  "a branch that was paused before its folder went away is not copied anew, and has its rows when the folder is back",
  () =>
    Effect.gen(function* () {
      const world: BranchWorld = yield* branchWorld
      const branch = makeBranch(world)
      const server = asServer(world, branch)
      const folder = folderOf(world, server)
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(branch)
        yield* engine.ready
        yield* asApplication(world, server, (sql) => sql.unsafe("insert into ledger values (-1)"))
        yield* engine.pause
        yield* stopped(folder)
        const putBack = yield* takenAway(folder)
        yield* engine.run
        assert.deepStrictEqual([engine.row().phase, ready(engine)], ["waiting", "false"])
        yield* engine.resume
        yield* forgetStatus(engine)
        yield* engine.run
        assert.deepStrictEqual([engine.row().phase, whyNot(engine)], ["failed", "DataLost"])
        assert.isFalse(fs.existsSync(folder), "the place is free for the folder")
        yield* putBack
        yield* engine.retry
        yield* engine.ready
        assert.strictEqual(yield* rowsIn(world, server), 1001)
      }).pipe(Effect.provide(branchReconciler(world)))
    }).pipe(Effect.scoped),
  minutes(10)
)

const client = (world: caches.CacheWorld, resource: caches.CacheResource) =>
  Effect.gen(function* () {
    const { port = 0 } = yield* caches.inspectCache(world, resource)
    const ca = yield* caches.authorityOf(world)
    return yield* caches.appClient({ port, password: passwordOf(world, resource), ca })
  })
const keep = (world: caches.CacheWorld, resource: caches.CacheResource) =>
  Effect.flatMap(client(world, resource), (one) => Effect.promise(() => one.set("kept", "yes"))).pipe(
    Effect.scoped
  )
const kept = (world: caches.CacheWorld, resource: caches.CacheResource) =>
  Effect.flatMap(client(world, resource), (one) => Effect.promise(() => one.get("kept"))).pipe(Effect.scoped)

it.live(
  "a cache with an append-only file whose folder went away, while its server ran or was down, is lost, not empty",
  () =>
    Effect.gen(function* () {
      const world = yield* caches.cacheWorld
      const resource = caches.makeCache(world)
      const folder = caches.folderOf(world, resource)
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(resource)
        yield* engine.ready
        yield* keep(world, resource)
        for (const running of [false, true]) {
          yield* engine.pause
          if (!running) yield* stopped(folder)
          const putBack = yield* takenAway(folder)
          yield* engine.run
          assert.deepStrictEqual([engine.row().phase, ready(engine)], ["waiting", "false"])
          yield* engine.resume
          yield* engine.run
          yield* forgetStatus(engine)
          yield* engine.run
          assert.strictEqual(whyNot(engine), "DataLost", running ? "it ran" : "it was down")
          assert.isFalse(fs.existsSync(folder), "the place is free for the folder")
          yield* putBack
          yield* engine.ready
          assert.strictEqual(yield* kept(world, resource), "yes")
          assert.lengthOf(engine.events("StartedEmpty"), 0)
        }
      }).pipe(Effect.provide(caches.cacheReconciler(world)))
    }).pipe(Effect.scoped),
  minutes(5)
)

it.live(
  "a cache that has lost what it was to keep begins empty once somebody asks for no persistence, and says so",
  () =>
    Effect.gen(function* () {
      const world = yield* caches.cacheWorld
      const resource = caches.makeCache(world)
      const folder = caches.folderOf(world, resource)
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(resource)
        yield* engine.ready
        yield* keep(world, resource)
        yield* stopped(folder)
        fs.rmSync(path.join(folder, "appendonlydir"), { recursive: true })
        yield* engine.run
        yield* engine.retry
        yield* engine.run
        assert.strictEqual(whyNot(engine), "DataLost", "asking for another try accepts no loss")
        assert.lengthOf(processesNaming(folder), 0)
        yield* engine.update({ ...resource.spec, persistence: "none" })
        yield* engine.ready
        assert.isNull(yield* kept(world, resource))
        assert.lengthOf(engine.events("StartedEmpty"), 1)
        yield* engine.update(resource.spec)
        yield* engine.ready
        assert.deepInclude(engine.row().facts, { persisted: true })
        yield* keep(world, resource)
        yield* stopped(folder)
        yield* engine.run
        yield* engine.ready
        assert.strictEqual(yield* kept(world, resource), "yes")
        assert.lengthOf(engine.events("StartedEmpty"), 1)
      }).pipe(Effect.provide(caches.cacheReconciler(world)))
    }).pipe(Effect.scoped),
  minutes(5)
)

it.live(
  "a cache without persistence that starts again after having been ready says that it lost what it held, once",
  () =>
    Effect.gen(function* () {
      const world = yield* caches.cacheWorld
      const resource = caches.makeCache(world, { persistence: "none" })
      yield* Effect.gen(function* () {
        const engine = yield* memoryEngine(resource)
        yield* engine.ready
        assert.lengthOf(engine.events("StartedEmpty"), 0)
        yield* stopped(caches.folderOf(world, resource))
        yield* engine.run
        yield* engine.ready
        yield* engine.run
        assert.lengthOf(engine.events("StartedEmpty"), 1)
      }).pipe(Effect.provide(caches.cacheReconciler(world)))
    }).pipe(Effect.scoped),
  minutes(5)
)
