/** What of an archive is not sent again. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Readable } from "node:stream"
import { afterAll, assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Piece } from "#src/builds/piece.ts"
import { piecesOf } from "#src/builds/pieces.ts"
import { type Progress, Uploads } from "#src/builds/Uploads.ts"
import type { UploadRef } from "#src/builds/upload-files.ts"
import { AppConfig } from "#src/config.ts"
import { digestOf, file as fileAt, tar } from "./archives.ts"

const dataDir = Effect.runSync(Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-earlier-"))))
afterAll(() => fs.rmSync(dataDir, { recursive: true }))
const world = (megabytes: number) =>
  Uploads.layer.pipe(Layer.provide(AppConfig.layerWith({ dataDir }, { SVC_UPLOADS_MB: String(megabytes) })))

const cleared = Effect.sync(() => fs.rmSync(path.join(dataDir, "uploads"), { recursive: true }))

const file = (name: string, content: string) => fileAt(name, content, { mtime: new Date(0) })
/** Of several files, each of 100 kB of its letter. */
const source = (letters: string) =>
  Effect.promise(() =>
    tar(
      file("index.html", letters),
      ...[...letters].map((letter) => file(`${letter.toLowerCase()}.txt`, letter.repeat(100_000)))
    )
  )
const cut = Effect.fnUntraced(function* (content: Buffer) {
  const name = path.join(dataDir, randomUUID())
  fs.writeFileSync(name, content)
  const pieces = yield* Effect.promise((signal) => piecesOf(name, signal))
  fs.rmSync(name)
  return pieces ?? []
})
const named = (orgId: string, digest: string, ending: string) =>
  path.join(dataDir, "uploads", orgId, `${digest}.${ending}`)

/** Sends what is asked for, and answers how much that was. */
const send = Effect.fnUntraced(function* (orgId: string, content: Buffer, compared = true) {
  const uploads = yield* Uploads
  const ref = { orgId, digest: digestOf(content) }
  const size = content.length
  let sent = 0
  let at: Progress = compared
    ? yield* uploads.compare(ref, yield* cut(content))
    : yield* uploads.append(ref, { offset: 0, size }, Readable.from([]))
  const announced = at.missing
  while (at.upload === undefined) {
    const part = content.subarray(at.received, at.until)
    sent += part.length
    at = yield* uploads.append(ref, { offset: at.received, size }, Readable.from([part]))
  }
  return { announced, sent, ref }
})

layer(world(16), { excludeTestServices: true })("an archive", (it) => {
  it.effect("is cut at its entries, whatever lies in its files", () =>
    Effect.gen(function* () {
      const content = yield* Effect.promise(() => tar(file("a", "a".repeat(700)), file("b", "ustar")))
      const bytes = (pieces: ReadonlyArray<Piece>) => pieces.map((piece) => piece.bytes)
      assert.deepStrictEqual(bytes(yield* cut(content)), [1_536, 2_048])
      const inner = yield* Effect.promise(() => tar(file("inner.tar", content.toString("latin1"))))
      assert.deepStrictEqual(bytes(yield* cut(inner)), [512, 1_536, 3_072])
      assert.deepStrictEqual(bytes(yield* cut(Buffer.from("no archive"))), [10])
    })
  )

  it.effect(
    "is sent but for what the organization has sent before, and is the same as if it was sent whole",
    () =>
      Effect.gen(function* () {
        const uploads = yield* Uploads
        const org = randomUUID()
        const first = yield* source("abcd")
        assert.strictEqual((yield* send(org, first, false)).sent, first.length)
        // One changed, one new, one gone.
        const second = yield* source("aBce")
        const { announced, sent, ref } = yield* send(org, second)
        assert.strictEqual(sent, announced)
        assert.isAtLeast(sent, 200_000)
        assert.isBelow(sent, 210_000)
        const other = randomUUID()
        const whole = yield* send(other, second)
        assert.strictEqual(whole.sent, second.length)
        assert.isTrue(fs.readFileSync(uploads.fileOf(ref)).equals(fs.readFileSync(uploads.fileOf(whole.ref))))
        // Of several earlier ones each gives what it has; all of it may be here.
        assert.isBelow((yield* send(org, yield* source("abce"))).sent, 10_000)
        assert.strictEqual((yield* send(org, second)).sent, 0)
      })
  )

  it.effect("is sent whole where what was found is gone or damaged by then", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const org = randomUUID()
      const before = (yield* send(org, yield* source("abc"))).ref
      const next = yield* source("xabc")
      const ref = { orgId: org, digest: digestOf(next) }
      const { missing, until } = yield* uploads.compare(ref, yield* cut(next))
      assert.isBelow(missing, 110_000)
      fs.rmSync(named(org, before.digest, "sent"))
      const begun = yield* uploads.append(
        ref,
        { offset: 0, size: next.length },
        Readable.from([next.subarray(0, until)])
      )
      assert.deepStrictEqual([begun.received, begun.until], [until, next.length])
      assert.isAtLeast((yield* send(org, next, false)).sent, 300_000)

      const damaged = named(org, ref.digest, "sent")
      fs.writeFileSync(damaged, fs.readFileSync(damaged).fill("z", 150_000, 160_000))
      const last = yield* source("xabcy")
      const error = yield* Effect.flip(send(org, last))
      assert.strictEqual(error._tag === "ArchiveRefused" && error.code, "digest_mismatch")
      assert.isFalse(fs.existsSync(damaged))
      assert.strictEqual((yield* send(org, last)).sent, last.length)
    })
  )

  it.effect("is compared with the newest, of a week", () =>
    Effect.gen(function* () {
      const uploads = yield* Uploads
      const org = randomUUID()
      const refs: Array<UploadRef> = []
      for (let index = 0; index < 12; index++) {
        const { ref } = yield* send(org, yield* source("abcdefghijkl"[index] ?? ""))
        const at = Date.now() / 1_000 - 3_600 + index
        for (const ending of ["sent", "pieces"]) fs.utimesSync(named(org, ref.digest, ending), at, at)
        refs.push(ref)
      }
      yield* uploads.sweep(() => Effect.succeed(new Set(["all"])))
      const kept = () => refs.map(({ digest }) => fs.existsSync(named(org, digest, "sent")))
      assert.deepStrictEqual(kept(), [false, false, ...Array.from({ length: 10 }, () => true)])
      for (const { digest } of refs.slice(2, 11))
        for (const ending of ["sent", "pieces"]) fs.utimesSync(named(org, digest, ending), 1, 1)
      yield* uploads.sweep(() => Effect.succeed(new Set(["all"])))
      assert.strictEqual(kept().filter((is) => is).length, 1)
    })
  )
})

layer(Layer.unwrap(Effect.map(cleared, () => world(4))), { excludeTestServices: true })(
  "an archive that has been built",
  (it) => {
    it.effect("is kept for later ones only while nothing else needs its room", () =>
      Effect.gen(function* () {
        const org = randomUUID()
        const uploads = yield* Uploads
        // Each 600 kB, and as much again for those that come after; an organization may have 1 MiB, all of them 4 MiB.
        const archives = yield* Effect.forEach(["abcdef", "ghijkl", "mnopqr", "stuvwx", "yzäöüß"], source)
        for (const content of archives) {
          yield* send(org, content)
          // Its build has ended.
          for (const ending of ["tar", "json"]) fs.utimesSync(named(org, digestOf(content), ending), 1, 1)
          yield* uploads.sweep(() => Effect.succeed(new Set<string>()))
        }
        const kept = archives.map((content) => fs.existsSync(named(org, digestOf(content), "sent")))
        assert.strictEqual(kept.at(-1), true)
        yield* Effect.forEach(["1", "2", "3", "4", "5"], (word) =>
          Effect.flatMap(source(`${word}abcde`), (content) => send(randomUUID(), content))
        )
        assert.isFalse(fs.existsSync(named(org, digestOf(archives[0] ?? Buffer.alloc(0)), "sent")))
      })
    )
  }
)
