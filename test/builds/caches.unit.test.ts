/** What package managers fetched, in the data folder. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { PackageCaches } from "#src/builds/PackageCaches.ts"
import { AppConfig } from "#src/config.ts"

const dataDir = Effect.runSync(Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-caches-"))))
const world = Layer.mergeAll(
  PackageCaches.layer,
  Layer.effectDiscard(Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dataDir, { recursive: true }))))
).pipe(Layer.provide(AppConfig.layerWith({ dataDir }, { SVC_BUILD_CACHES_MB: "1" })))

const of = (projectId: string, locks: string) => ({ orgId: "org", owner: projectId, locks })
const put = Effect.fnUntraced(function* (projectId: string, locks: string, bytes = 10) {
  const { put } = yield* PackageCaches
  yield* put(of(projectId, locks), (file) => Effect.sync(() => fs.writeFileSync(file, Buffer.alloc(bytes))))
})
const find = Effect.fnUntraced(function* (projectId: string, locks: string) {
  const found = yield* (yield* PackageCaches).find(of(projectId, locks))
  return found === undefined ? "none" : `${path.basename(found.file)} ${found.isExact}`
})
const files = () =>
  fs
    .readdirSync(path.join(dataDir, "build-caches"), { recursive: true })
    .map(String)
    .filter((name) => /\.\w+$/.test(name))
/** As if everything were so much older. */
const age = (days: number) => {
  for (const name of files()) {
    const file = path.join(dataDir, "build-caches", name)
    const at = fs.statSync(file).mtimeMs / 1_000 - days * 86_400
    fs.utimesSync(file, at, at)
  }
}

layer(world, { excludeTestServices: true })("caches of packages", (it) => {
  it.effect("are for their project: for the same lock files, or else its newest", () =>
    Effect.gen(function* () {
      yield* put("one", "a")
      age(1)
      yield* put("one", "b")
      assert.strictEqual(yield* find("one", "a"), "a.tar true")
      age(1)
      yield* put("one", "c")
      assert.strictEqual(yield* find("one", "new"), "c.tar false")
      // Two of a project are kept: those that were used last.
      assert.strictEqual(yield* find("one", "b"), "c.tar false")
      assert.strictEqual(yield* find("two", "a"), "none")
    })
  )

  it.effect("are not there when they could not be written", () =>
    Effect.gen(function* () {
      const { put } = yield* PackageCaches
      const failed = put(of("three", "a"), (file) =>
        Effect.andThen(
          Effect.sync(() => fs.writeFileSync(file, "half")),
          Effect.fail("no")
        )
      )
      assert.strictEqual((yield* Effect.result(failed))._tag, "Failure")
      assert.strictEqual(yield* find("three", "a"), "none")
      assert.isFalse(files().some((name) => name.includes("three")))
    })
  )

  it.effect("go when there is too much of them, the longest unused first, and when they are old", () =>
    Effect.gen(function* () {
      const { prune } = yield* PackageCaches
      yield* put("four", "a", 600_000)
      age(1)
      yield* put("five", "a", 600_000)
      assert.deepStrictEqual([yield* find("four", "a"), yield* find("five", "a")], ["none", "a.tar true"])
      age(15)
      yield* prune
      assert.deepStrictEqual(files(), [])
    })
  )
})
