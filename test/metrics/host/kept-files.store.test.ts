/** What looks keep beside the servers: who looks, and which runs of servers were seen. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { Host } from "#src/infra/host/Host.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { makeDisks } from "#src/metrics/host/disks.ts"
import * as loop from "#src/metrics/host/loop.ts"
import { makeOneSampler } from "#src/metrics/host/one-sampler.ts"
import { makeStarts } from "#src/metrics/host/starts.ts"
import { MetricSamples } from "#src/metrics/MetricSamples.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { testDb } from "#test/setup/database.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { sweep } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"

const dataDir = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (made) => Effect.promise(() => sweep(made))
)
const hostOf = (folder: string) => Host.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir: folder })))

/** The answer to a question in which somebody waits for the clock. */
const moved = Effect.fnUntraced(function* <A, E>(self: Effect.Effect<A, E>) {
  const asked = yield* Effect.forkChild(self)
  yield* eventually(
    "it has answered",
    Effect.andThen(
      TestClock.adjust("100 millis"),
      Effect.sync(() => asked.pollUnsafe() !== undefined)
    )
  )
  return yield* Fiber.join(asked)
})

it.effect("of several processes one measures, until it leaves, ends or stands still", () =>
  Effect.gen(function* () {
    const folder = yield* dataDir
    const host = yield* Effect.provide(Host, hostOf(folder))
    const [first, second, third] = [1, 2, 3].map(() => makeOneSampler(host, folder))
    if (first === undefined || second === undefined || third === undefined) throw new Error("there are three")
    assert.isTrue(yield* moved(first.isMine))
    assert.isFalse(yield* second.isMine)
    yield* TestClock.adjust("40 seconds")
    assert.isTrue(yield* first.isMine)
    yield* TestClock.adjust("40 seconds")
    assert.isFalse(yield* second.isMine, "it was touched meanwhile")
    yield* TestClock.adjust("10 seconds")
    assert.isTrue(yield* moved(second.isMine), "the first one stands still")
    assert.isFalse(yield* first.isMine, "it finds that it was replaced")
    yield* first.leave
    assert.isFalse(yield* third.isMine, "who was replaced takes nothing away")
    yield* second.leave
    assert.isTrue(yield* moved(third.isMine))

    fs.writeFileSync(path.join(folder, "sampler.json"), JSON.stringify({ pid: 2 ** 22 + 1, token: "x" }))
    assert.isTrue(yield* moved(first.isMine), "its process has ended")
    fs.writeFileSync(path.join(folder, "sampler.json"), "not this")
    assert.isTrue(yield* moved(second.isMine))
  }).pipe(Effect.scoped)
)

it.effect("starts are counted for an hour, and by whoever looks next", () =>
  Effect.gen(function* () {
    const folder = yield* dataDir
    const host = yield* Effect.provide(Host, hostOf(folder))
    const starts = makeStarts(host, folder)
    const minute = 60_000
    const note = (runs: Readonly<Record<string, string | undefined>>, at: number, by = starts) =>
      Effect.map(by.note(new Map(Object.entries(runs)), at), (counts) => Object.fromEntries(counts))
    assert.deepStrictEqual(
      yield* note({ a: "1", b: undefined }, 0),
      { a: 0 },
      "nothing is known of what never ran"
    )
    const written = () => fs.statSync(path.join(folder, "starts.json")).ino
    const before = written()
    assert.deepStrictEqual(yield* note({ a: "1" }, minute), { a: 0 })
    assert.strictEqual(written(), before, "nothing is written where nothing has happened")
    assert.deepStrictEqual(yield* note({ a: undefined }, 2 * minute), { a: 0 }, "it does not run")
    assert.deepStrictEqual(yield* note({ a: "2" }, 3 * minute), { a: 1 })
    assert.deepStrictEqual(yield* note({ a: "3", b: "1" }, 4 * minute), { a: 2, b: 0 })
    assert.deepStrictEqual(yield* note({ a: "3", b: "1" }, 5 * minute, makeStarts(host, folder)), {
      a: 2,
      b: 0
    })
    assert.deepStrictEqual(
      yield* note({ a: "3", b: "1" }, 63 * minute),
      { a: 1, b: 0 },
      "the first is an hour ago"
    )
    assert.deepStrictEqual(yield* note({ b: "1" }, 64 * minute), { b: 0 }, "it is gone")
    assert.deepStrictEqual(yield* note({ a: "9", b: "1" }, 65 * minute), { a: 0, b: 0 })
    fs.writeFileSync(path.join(folder, "starts.json"), "{")
    assert.deepStrictEqual(yield* note({ a: "10" }, 66 * minute, makeStarts(host, folder)), { a: 0 })
  }).pipe(Effect.scoped)
)

it.effect("folders are walked through every five minutes, and what cannot be told of a disk is absent", () =>
  Effect.gen(function* () {
    const folder = yield* dataDir
    const asked: Array<ReadonlyArray<string>> = []
    let kilobytes = 7
    const disks = makeDisks({
      run: (_, args) => {
        const folders = args.slice(args.indexOf("--") + 1)
        asked.push(folders)
        return Effect.succeed({ code: 1, output: folders.map((one) => `${kilobytes}\t${one}\n`).join("") })
      }
    })
    for (const name of ["a", "b", "elsewhere"]) fs.mkdirSync(path.join(folder, name))
    fs.symlinkSync(path.join(folder, "elsewhere"), path.join(folder, "b", "data"))
    const folders = new Map(["a", "b", "gone"].map((key) => [key, path.join(folder, key)]))
    assert.deepStrictEqual([...(yield* disks.values)], [])
    yield* disks.walk(folders)
    const values = yield* disks.values
    assert.strictEqual(values.get("a")?.["disk.used_bytes"], 7_168)
    assert.strictEqual(values.get("b")?.["disk.used_bytes"], 14_336, "with the data that are on another disk")
    assert.isDefined(values.get("a")?.["storage.capacity"])
    assert.isFalse(values.has("gone"))
    kilobytes = 8
    yield* TestClock.adjust("4 minutes")
    yield* disks.walk(folders)
    assert.strictEqual(asked.length, 1, "it is not their turn")
    yield* TestClock.adjust("1 minute")
    yield* disks.walk(folders)
    assert.strictEqual((yield* disks.values).get("a")?.["disk.used_bytes"], 8_192)
    yield* disks.walk(new Map())
    assert.strictEqual((yield* disks.values).size, 0)
  }).pipe(Effect.scoped)
)

it.effect(
  "of two control planes on one data folder one records, also after the store was away, and then the other",
  () =>
    Effect.gen(function* () {
      const folder = yield* dataDir
      const secrets = memorySecrets()
      const db = yield* Layer.build(testDb())
      const start = Effect.fnUntraced(function* (fails: () => boolean) {
        const scope = yield* Scope.make()
        const looks = { count: 0 }
        const recording = Layer.succeed(MetricSamples, {
          record: () =>
            Effect.suspend(() => {
              looks.count++
              return fails() ? new StoreUnavailable({ message: "it is away" }) : Effect.void
            })
        })
        const plane = loop.layer.pipe(
          Layer.provide([recording, RedisServers.layer, ContainerEngine.layer, Installation.layer]),
          Layer.provide(Host.layer),
          Layer.provide(AppConfig.layerWith({ dataDir: folder, containerSocket: "none" })),
          Layer.provide(secrets.layer),
          Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env: { SVC_METRICS_SECONDS: "5" } })))
        )
        yield* Effect.provide(Scope.provide(Layer.build(plane), scope), db)
        return { looks, stop: Scope.close(scope, Exit.void) }
      })
      const windows = Effect.forEach(
        [1, 2, 3],
        () =>
          Effect.andThen(
            TestClock.adjust("5 seconds"),
            // Files are read in real time.
            Effect.promise(() => new Promise((done) => setTimeout(done, 10)))
          ),
        { discard: true }
      )
      const reaches = (looks: { readonly count: number }, least: number) =>
        eventually(
          "it has looked",
          Effect.andThen(
            windows,
            Effect.sync(() => looks.count >= least)
          )
        )

      let away = true
      const first = yield* start(() => away)
      yield* reaches(first.looks, 2)
      away = false
      yield* reaches(first.looks, first.looks.count + 2)
      const second = yield* start(() => false)
      const before = first.looks.count
      yield* reaches(first.looks, before + 4)
      assert.strictEqual(second.looks.count, 0)
      yield* first.stop
      const last = first.looks.count
      yield* reaches(second.looks, 2)
      assert.strictEqual(first.looks.count, last)
      yield* second.stop
      assert.isFalse(fs.existsSync(path.join(folder, "metrics/sampler.json")))
    }).pipe(Effect.scoped)
)
