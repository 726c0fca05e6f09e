import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { Host } from "#src/infra/Host.ts"
import { freePort } from "#test/setup/postgres.ts"

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
