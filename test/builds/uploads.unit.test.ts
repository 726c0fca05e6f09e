/** Uploads in the data folder: how they come, stay and go. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { PassThrough, Readable } from "node:stream"
import { afterAll, assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Uploads } from "#src/builds/Uploads.ts"
import { keyOf } from "#src/builds/upload-files.ts"
import { AppConfig } from "#src/config.ts"
import { eventually } from "#test/setup/wait.ts"
import { digestOf, file, tar } from "./archives.ts"

const dataDir = Effect.runSync(Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-uploads-"))))
afterAll(() => fs.rmSync(dataDir, { recursive: true }))
const world = Uploads.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir }, { SVC_UPLOADS_MB: "1" })))

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

  it.effect("are kept by the digest of what is kept, whoever packed it", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const keep = Effect.fnUntraced(function* (name: string) {
        const content = yield* Effect.promise(() => tar(file(name, "same")))
        return yield* uploads.keep("git", Readable.from([content]))
      })
      const [one, two] = [yield* keep("index.html"), yield* keep("./index.html")]
      assert.strictEqual(one.digest, two.digest)
      assert.isTrue(Option.isSome(yield* uploads.find(one)))
      assert.strictEqual(digestOf(fs.readFileSync(uploads.fileOf(one))), one.digest)
    })
  )

  it.effect("come in parts, each once, and go on where an earlier try ended", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const content = yield* page("in parts".repeat(1_000))
      const ref = { orgId: "parts", digest: digestOf(content) }
      const size = content.length
      const part = (offset: number, some: Buffer) =>
        Effect.map(uploads.append(ref, { offset, size }, Readable.from([some])), ({ received, upload }) => [
          received,
          upload !== undefined
        ])
      assert.deepStrictEqual(yield* part(0, content.subarray(0, 2_000)), [2_000, false])
      assert.deepStrictEqual(yield* part(0, content.subarray(0, 2_000)), [2_000, false])
      assert.deepStrictEqual(yield* part(3_000, content.subarray(3_000)), [2_000, false])
      assert.isTrue(Option.isNone(yield* uploads.find(ref)))
      assert.deepStrictEqual(yield* part(2_000, content.subarray(2_000)), [size, true])
      assert.deepStrictEqual(yield* part(0, Buffer.alloc(0)), [size, true])
      assert.isTrue(Option.isSome(yield* uploads.find(ref)))
    })
  )

  it.effect("are whole if the same part comes twice at once", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const content = yield* page("twice".repeat(1_000))
      const ref = { orgId: "twice", digest: digestOf(content) }
      const size = content.length
      const part = (offset: number, some: Buffer) =>
        Effect.map(
          uploads.append(ref, { offset, size }, Readable.from([some])),
          ({ received, upload }) => `${received} ${upload !== undefined}`
        )
      const both = (offset: number, some: Buffer) =>
        Effect.all([part(offset, some), part(offset, some)], { concurrency: "unbounded" })
      assert.deepStrictEqual(yield* both(0, content.subarray(0, 2_000)), ["2000 false", "2000 false"])
      assert.deepStrictEqual(yield* both(2_000, content.subarray(2_000)), [`${size} true`, `${size} true`])
    })
  )

  it.effect("are whole if another process takes the last part while this one does", () =>
    Effect.gen(function* () {
      const here = yield* Uploads
      const there = yield* Effect.map(Layer.build(Layer.fresh(world)), Context.get(Uploads))
      const content = yield* page("two processes".repeat(1_000))
      const ref = { orgId: "processes", digest: digestOf(content) }
      const size = content.length
      const rest = { offset: 2_000, size }
      yield* here.append(ref, { offset: 0, size }, Readable.from([content.subarray(0, 2_000)]))
      const slow = new PassThrough()
      slow.write(content.subarray(2_000, 2_500))
      const waiting = yield* Effect.forkChild(here.append(ref, rest, slow))
      const sending = path.join(dataDir, "uploads", ref.orgId, `${ref.digest}.sending`)
      yield* eventually(
        "it has begun",
        Effect.sync(() => fs.statSync(sending).size),
        (bytes) => bytes === 2_500
      )
      // That one does not take a part which begins before where the file ends, and tells where it does.
      assert.strictEqual(
        (yield* there.append(ref, rest, Readable.from([content.subarray(2_000)]))).received,
        2_500
      )
      const own = { offset: 2_500, size }
      const done = yield* there.append(ref, own, Readable.from([content.subarray(2_500)]))
      assert.strictEqual(done.upload?.entries, 1)
      const archive = fs.readFileSync(here.fileOf(ref))
      slow.end(content.subarray(2_500))
      const late = yield* Fiber.join(waiting)
      assert.isTrue(late.upload === undefined || late.upload.entries === 1)
      // Whoever asks again is told that all of it is here; nobody has changed it.
      const again = yield* here.append(ref, { offset: 0, size }, Readable.from([]))
      assert.deepStrictEqual([again.upload?.plan, again.upload?.bytes], [done.upload?.plan, size])
      assert.isTrue(archive.equals(fs.readFileSync(here.fileOf(ref))))
    })
  )

  it.effect("that two processes take at once are kept once, by what they hold", () =>
    Effect.gen(function* () {
      const there = yield* Effect.map(Layer.build(Layer.fresh(world)), Context.get(Uploads))
      const content = yield* page("at once".repeat(2_000))
      const ref = { orgId: "at-once", digest: digestOf(content) }
      const by = (uploads: Uploads["Service"], bytes: Buffer) =>
        Effect.result(uploads.store(ref, Readable.from([bytes.subarray(0, 900), bytes.subarray(900)])))
      const here = yield* Uploads
      const wrong = yield* page("something else")
      const results = yield* Effect.all([by(here, content), by(there, wrong), by(there, content)], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual([results[0]._tag, results[2]._tag], ["Success", "Success"])
      const kept = files().filter((name) => name.includes(ref.digest))
      assert.deepStrictEqual(kept.map((name) => path.extname(name)).sort(), [".json", ".tar"])
      assert.include(fs.readFileSync(here.fileOf(ref), "utf8"), "at once")
    })
  )

  it.effect("that have come in part are few", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const begin = (orgId: string, index: number, content = "") => {
        const ref = { orgId, digest: digestOf(Buffer.from(String(index))) }
        return Effect.result(
          uploads.append(ref, { offset: 0, size: 9 }, Readable.from([Buffer.from(content)]))
        )
      }
      for (let index = 0; index < 64; index++)
        assert.strictEqual((yield* begin("begun", index))._tag, "Success", String(index))
      assert.strictEqual((yield* begin("begun", 64))._tag, "Failure")
      assert.strictEqual((yield* begin("begun", 0, "more"))._tag, "Success")
      assert.strictEqual((yield* begin("other", 64))._tag, "Success")
    })
  )

  it.effect("are not put together of other parts than were announced", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const content = yield* page("announced")
      const ref = { orgId: "wrong", digest: digestOf(Buffer.from("else")) }
      const { length } = content
      const append = (size: number) =>
        Effect.result(uploads.append(ref, { offset: 0, size }, Readable.from([content])))
      assert.strictEqual((yield* append(length - 1))._tag, "Failure")
      yield* Effect.result(uploads.append(ref, { offset: 0, size: length }, Readable.from([])))
      assert.strictEqual((yield* append(length))._tag, "Failure")
      assert.isFalse(files().some((name) => name.includes(ref.digest)))
      assert.strictEqual((yield* append(2 ** 40))._tag, "Failure")
    })
  )

  it.effect("are not taken while those that wait fill what there is for them", () =>
    Effect.gen(function* () {
      yield* store("one", yield* page("x".repeat(1024 * 1024)))
      const next = yield* store("one", yield* page("next"))
      assert.deepStrictEqual([next.tag, next.isRead], ["Failure", true])
      const other = yield* store("two", yield* page("next"))
      assert.strictEqual(other.tag, "Failure")
    })
  )
})

const shared = AppConfig.layerWith({ dataDir }, { SVC_UPLOADS_MB: "8" })
layer(Uploads.layer.pipe(Layer.provide(shared)), { excludeTestServices: true })(
  "uploads of several",
  (it) => {
    it.effect("leave room for other organizations", () =>
      Effect.gen(function* () {
        const word = randomUUID()
        yield* store(`${word}-1`, yield* page(word.repeat(60_000)))
        assert.strictEqual((yield* store(`${word}-1`, yield* page("more"))).tag, "Failure")
        assert.strictEqual((yield* store(`${word}-2`, yield* page("more"))).tag, "Success")
      })
    )

    it.effect("have the room that there is when their rest comes, not when they began", () =>
      Effect.gen(function* () {
        const uploads = yield* Uploads
        const orgId = randomUUID()
        const contents = yield* Effect.forEach(["a", "b", "c"], (letter) => page(letter.repeat(900_000)))
        const parts = (from: number, to?: number) =>
          Effect.forEach(contents, (content) =>
            Effect.result(
              uploads.append(
                { orgId, digest: digestOf(content) },
                { offset: from, size: content.length },
                Readable.from([content.subarray(from, to)])
              )
            )
          )
        const begun = yield* parts(0, 1)
        const ended = yield* parts(1)
        assert.deepStrictEqual(
          [...begun, ...ended].map(({ _tag }) => _tag),
          [...Array(5).fill("Success"), "Failure"]
        )
      })
    )
  }
)

const full = AppConfig.layerWith({ dataDir }, { SVC_BUILD_FREE_MB: "999999999" })
layer(Uploads.layer.pipe(Layer.provide(full)), { excludeTestServices: true })(
  "uploads to a full disk",
  (it) => {
    it.effect("are not taken", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* store("three", yield* page("x"))).tag, "Failure")
      })
    )
  }
)
