/**
 * What the neighbours of a database cost it: its transactions while other tenants' clients take what they can from
 * their own servers for a minute, against those of a minute in which nothing else runs.
 */
import * as os from "node:os"
import * as Effect from "effect/Effect"
import { Registry } from "#src/engine/Reconciler.ts"
import { Host } from "#src/infra/host/Host.ts"
import { reachGoal } from "#test/reconcilers/settle.ts"
import * as caches from "#test/setup/caches.ts"
import * as databases from "#test/setup/databases.ts"
import {
  connectionFlood,
  greedyScript,
  greedyStatement,
  neverReading,
  type Reach,
  usualLoad
} from "#test/setup/hostile.ts"
import { passwordOf } from "#test/setup/machine.ts"
import type { Figure } from "./figures.ts"

const seconds = 60
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const measured = Effect.gen(function* () {
  const dbWorld = yield* databases.databaseWorld
  const cacheWorld = yield* caches.cacheWorld
  return yield* Effect.gen(function* () {
    const database = (yield* Registry).registrations.get("Database")!.reconciler
    const cache = yield* Effect.map(
      Registry,
      ({ registrations }) => registrations.get("Cache")!.reconciler
    ).pipe(Effect.provide(caches.cacheReconciler(cacheWorld), { local: true }))
    const quiet = databases.makeDatabase(dbWorld)
    const hostile = databases.makeDatabase(dbWorld)
    const store = caches.makeCache(cacheWorld)
    yield* reachGoal(database, quiet)
    yield* reachGoal(database, hostile)
    yield* reachGoal(cache, store)

    const ca = yield* caches.authorityOf(dbWorld)
    const reachOf = Effect.fnUntraced(function* (one: databases.DatabaseResource) {
      const { port } = yield* databases.inspectDatabase(dbWorld, one)
      const password = encodeURIComponent(passwordOf(dbWorld, one))
      return { url: `postgres://app:${password}@127.0.0.1:${port}/app`, ca } satisfies Reach
    })
    const { port } = yield* caches.inspectCache(cacheWorld, store)
    const cacheReach: Reach = {
      url: `rediss://svc:${encodeURIComponent(passwordOf(cacheWorld, store))}@127.0.0.1:${port}`,
      ca: yield* caches.authorityOf(cacheWorld)
    }
    const holdingOf = (world: databases.DatabaseWorld) =>
      Effect.map(Host, ({ holding }) => holding).pipe(
        Effect.provide(databases.databaseServices(world), { local: true })
      )
    const held = yield* holdingOf(dbWorld)
    const heldCache = yield* holdingOf(cacheWorld)
    const { usable } = yield* held.placed

    const usual = yield* Effect.acquireRelease(
      Effect.promise(async () => usualLoad(await Effect.runPromise(reachOf(quiet)))),
      (load) => Effect.promise(load.stop)
    )
    const minute = Effect.promise(async () => {
      const from = usual.answered()
      await sleep(seconds * 1000)
      return (usual.answered() - from) / seconds
    })
    yield* Effect.promise(() => sleep(3_000))
    const alone = yield* minute
    const hostileReach = yield* reachOf(hostile)
    const neighbours = yield* Effect.acquireRelease(
      Effect.sync(() => [
        greedyStatement(hostileReach),
        connectionFlood(hostileReach),
        ...(usable ? [neverReading(cacheReach), greedyScript(cacheReach)] : [])
      ]),
      (some) => Effect.promise(() => Promise.all(some.map(({ stop }) => stop())))
    )
    // What is ended is started again, as the engine does.
    const care = Effect.forever(
      Effect.andThen(
        Effect.forEach(
          [reachGoal(database, hostile, 5_000), reachGoal(cache, store, 5_000)],
          (one) => Effect.ignore(Effect.sandbox(one)),
          { concurrency: 2 }
        ),
        Effect.sleep("2 seconds")
      )
    )
    const beside = yield* Effect.raceFirst(minute, care)
    const kills = {
      quiet: (yield* held.look(quiet.uid, undefined)).kills,
      database: (yield* held.look(hostile.uid, undefined)).kills,
      cache: (yield* heldCache.look(store.uid, undefined)).kills
    }
    const note = usable ? "with control groups" : "without control groups"
    const figures: ReadonlyArray<Figure> = [
      {
        name: "transactions of a database alone",
        value: alone,
        unit: "/s",
        note: `${os.cpus().length} processors`
      },
      { name: "the same beside hostile neighbours", value: beside, unit: "/s", note },
      { name: "of that when alone", value: beside / alone, unit: "x", aim: "its share: 0.33 or more" },
      { name: "transactions that failed", value: usual.failures.length, unit: "", aim: "0" },
      { name: "processes that the kernel ended of it", value: kills.quiet, unit: "", aim: "0" },
      { name: "of the hostile tenants' database", value: kills.database, unit: "" },
      { name: "of their cache", value: kills.cache, unit: "", note: `${neighbours.length} kinds of clients` }
    ]
    return figures
  }).pipe(Effect.provide(databases.databaseReconciler(dbWorld), { local: true }), Effect.scoped)
}).pipe(Effect.scoped)

export const isolation = (): Promise<ReadonlyArray<Figure>> => Effect.runPromise(measured)
