/** Uploads in the data folder: how they come, stay and go. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Readable } from "node:stream"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { keyOf, Uploads } from "#src/builds/Uploads.ts"
import { AppConfig } from "#src/config.ts"
import { digestOf, file, tar } from "./archives.ts"

const dataDir = Effect.runSync(Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-uploads-"))))
const world = Layer.mergeAll(
  Uploads.layer,
  Layer.effectDiscard(Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dataDir, { recursive: true }))))
).pipe(Layer.provide(AppConfig.layerWith({ dataDir }, { SVC_UPLOADS_MB: "1" })))

const page = (text: string) => Effect.promise(() => tar(file("index.html", text)))
const store = Effect.fnUntraced(function* (orgId: string, content: Buffer) {
  const uploads = yield* Uploads
  const source = Readable.from([content.subarray(0, 700), content.subarray(700)])
  const done = yield* Effect.result(uploads.store({ orgId, digest: digestOf(content) }, source))
  return { tag: done._tag, isRead: source.readableEnded, ref: { orgId, digest: digestOf(content) } }
})
const files = () => fs.readdirSync(dataDir, { recursive: true }).map(String)
const age = () => {
  for (const name of files()) fs.utimesSync(path.join(dataDir, name), 1, 1)
}

layer(world, { excludeTestServices: true })("uploads", (it) => {
  it.effect("are there for their organization, with a plan, and for no other", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const { ref } = yield* store("one", yield* page("a"))
      const found = Option.getOrThrow(yield* uploads.find(ref))
      assert.deepStrictEqual([found.entries, found.plan.kind], [1, "static"])
      assert.isTrue(fs.existsSync(uploads.fileOf(ref)))
      assert.isTrue(Option.isNone(yield* uploads.find({ ...ref, orgId: "two" })))
    })
  )

  it.effect("leave nothing when they are refused, and are read to their end all the same", () =>
    Effect.gen(function* () {
      const before = files()
      const content = yield* Effect.promise(() =>
        tar(file("../out", "x".repeat(4_000)), file("y", "y".repeat(4_000)))
      )
      const { tag, isRead } = yield* store("one", content)
      assert.deepStrictEqual([tag, isRead, files()], ["Failure", true, before])
    })
  )

  it.effect("go once they are old and no deployment waits for them", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const kept = (yield* store("one", yield* page("kept"))).ref
      const gone = (yield* store("one", yield* page("gone"))).ref
      const nobody = () => Effect.succeed(new Set<string>())
      yield* uploads.sweep(nobody)
      assert.isTrue(Option.isSome(yield* uploads.find(gone)))
      age()
      yield* uploads.sweep(() => Effect.succeed(new Set([keyOf(kept)])))
      assert.isTrue(Option.isSome(yield* uploads.find(kept)))
      assert.isTrue(Option.isNone(yield* uploads.find(gone)))
      yield* uploads.sweep(nobody)
      assert.deepStrictEqual(
        files().filter((name) => /\.\w+$/.test(name)),
        []
      )
    })
  )

  it.effect("are not taken while those that wait fill what there is for them", () =>
    Effect.gen(function* () {
      yield* store("one", yield* page("x".repeat(1024 * 1024)))
      const next = yield* store("one", yield* page("next"))
      assert.deepStrictEqual([next.tag, next.isRead], ["Failure", true])
    })
  )
})
