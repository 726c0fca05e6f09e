import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { Host } from "#src/infra/host/Host.ts"
import { hostLock } from "#src/infra/host/host-lock.ts"
import { freePort } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"

it.live("a folder whose maker was killed before handing it over is handed over by the next one", () =>
  Effect.gen(function* () {
    const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true })))
    yield* Effect.gen(function* () {
      const host = yield* Host
      fs.mkdirSync(path.join(dataDir, "caches"), { mode: 0o700 })
      yield* host.directory(path.join(dataDir, "caches", "one"))
      const owner = (folder: string) => fs.statSync(path.join(dataDir, folder)).uid
      assert.strictEqual(owner("caches"), owner("caches/one"))
    }).pipe(Effect.provide(Host.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir })))))
  }).pipe(Effect.scoped)
)

it.live("ports are of the range that was named, each for one owner; when all are taken, that is said", () =>
  Effect.gen(function* () {
    const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true })))
    const first = yield* Effect.promise(freePort)
    const settings = AppConfig.layerWith({ dataDir, managedPorts: { first, last: first } })
    yield* Effect.gen(function* () {
      const host = yield* Host
      assert.strictEqual(yield* host.reservePort("one"), first)
      assert.strictEqual(yield* host.reservePort("one"), first)
      const full = yield* Effect.flip(host.reservePort("two"))
      assert.include(full.message, `from ${first} to ${first} (SVC_MANAGED_PORTS) is taken`)
      yield* host.releasePorts("one")
      assert.strictEqual(yield* host.reservePort("two"), first)
    }).pipe(Effect.provide(Host.layer.pipe(Layer.provide(settings))))
  }).pipe(Effect.scoped)
)

it.live("a server that was begun is known by its own command line from then on", () =>
  Effect.gen(function* () {
    const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    yield* Effect.addFinalizer(() => Effect.promise(() => sweep(dataDir)))
    yield* Effect.gen(function* () {
      const host = yield* Host
      const [command] = Option.toArray(yield* host.which("tail"))
      if (command === undefined) return yield* Effect.die("there is no tail")
      const file = path.join(dataDir, "waits")
      yield* host.writeFile(file, "")
      for (let n = 0; n < 5; n++) {
        const pid = yield* host.spawn({
          command,
          args: ["-f", file],
          cwd: dataDir,
          logFile: path.join(dataDir, "log"),
          limits: { name: `server-${n}`, limits: { memoryBytes: 64 << 20, cpus: 1, processes: 8 } },
          oomScore: 500
        })
        const named = (marker: string) => host.isRunning(pid, marker)
        assert.deepStrictEqual([yield* named(`${command}\0-f`), yield* named("sh\0-c")], [true, false])
      }
    }).pipe(Effect.provide(Host.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir })))))
  }).pipe(Effect.scoped)
)

it.live("a server that becomes itself again, as HAProxy's master does, runs at every moment of it", () =>
  Effect.gen(function* () {
    const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    yield* Effect.addFinalizer(() => Effect.promise(() => sweep(dataDir)))
    yield* Effect.gen(function* () {
      const host = yield* Host
      const [command] = Option.toArray(yield* host.which("sh"))
      if (command === undefined) return yield* Effect.die("there is no sh")
      const script = path.join(dataDir, "again")
      yield* host.writeFile(script, `exec ${command} ${script}`)
      const pid = yield* host.spawn({
        command,
        args: [script],
        cwd: dataDir,
        logFile: path.join(dataDir, "log")
      })
      const looks = yield* Effect.all(
        Array.from({ length: 5_000 }, () => host.isRunning(pid, script)),
        { concurrency: 4 }
      )
      assert.deepStrictEqual([...new Set(looks)], [true])
    }).pipe(Effect.provide(Host.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir })))))
  }).pipe(Effect.scoped)
)

it.live("a lock of the host has one holder, and is free again when its holder or who waits for it ends", () =>
  Effect.gen(function* () {
    const name = `svc-test-${randomUUID()}`
    const held = (body: Effect.Effect<unknown>) => Effect.scoped(Effect.andThen(hostLock(name), body))
    const first = yield* Deferred.make<void>()
    const got = yield* Deferred.make<void>()
    const holder = yield* Effect.forkChild(
      held(Effect.andThen(Deferred.succeed(got, undefined), Deferred.await(first)))
    )
    yield* Deferred.await(got)
    const late = yield* Effect.option(Effect.timeout(held(Effect.void), "1 second"))
    assert.isTrue(Option.isNone(late))
    const waiting = yield* Effect.forkChild(held(Effect.void))
    yield* Deferred.succeed(first, undefined)
    yield* Fiber.join(waiting)
    yield* Fiber.join(holder)
  })
)
