import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { copyFiles } from "#src/infra/postgres/copy.ts"
import { eventually } from "#test/setup/wait.ts"

const folders = Effect.acquireRelease(
  Effect.sync(() => {
    const root = fs.mkdtempSync(path.join(os.tmpdir(), "copy-"))
    for (const name of ["from/base", "into"]) fs.mkdirSync(path.join(root, name), { recursive: true })
    return { root, from: path.join(root, "from"), into: path.join(root, "into") }
  }),
  ({ root }) => Effect.sync(() => fs.rmSync(root, { recursive: true, force: true }))
)

const listed = (from: string, names: ReadonlyArray<string>) => ({
  folders: ["base"],
  files: names.map((name) => ({ path: name, bytes: fs.statSync(path.join(from, name)).size }))
})

it.live("files of all sizes arrive as they are, for nobody but their owner", () =>
  Effect.gen(function* () {
    const { from, into } = yield* folders
    const block = 256 * 1024
    const sizes = [0, 1, block - 1, block, block + 1, 3 * block, 70 * 1_048_576 + 5]
    const names = sizes.map((size, index) => {
      const name = index % 2 === 0 ? `base/${size}` : String(size)
      const content = Buffer.alloc(size)
      for (let at = 0; at < size; at += 1 + (at % 509)) content[at] = at % 251
      fs.writeFileSync(path.join(from, name), content)
      return name
    })
    let told = 0
    yield* copyFiles({
      from,
      into,
      what: listed(from, names),
      owner: undefined,
      onBytes: (bytes) => {
        told += bytes
      }
    })
    for (const name of names) {
      assert.isTrue(
        fs.readFileSync(path.join(from, name)).equals(fs.readFileSync(path.join(into, name))),
        name
      )
      assert.strictEqual(fs.statSync(path.join(into, name)).mode & 0o777, 0o600)
    }
    assert.strictEqual(
      told,
      sizes.reduce((sum, size) => sum + size, 0)
    )
  }).pipe(Effect.scoped)
)

it.live(
  "a file that has gone is left out, or fails a copy that is to be complete; one that is there is not replaced",
  () =>
    Effect.gen(function* () {
      const { from, into } = yield* folders
      fs.writeFileSync(path.join(from, "stays"), "here")
      const what = { folders: [], files: ["gone", "stays"].map((name) => ({ path: name, bytes: 4 })) }
      const copy = (complete: boolean) =>
        copyFiles({ from, into, what, owner: undefined, complete, onBytes: () => {} })
      yield* copy(false)
      assert.deepStrictEqual(fs.readdirSync(into), ["stays"])
      assert.strictEqual((yield* Effect.flip(copy(true))).code, "ENOENT")
      assert.strictEqual((yield* Effect.flip(copy(false))).code, "EEXIST")
    }).pipe(Effect.scoped)
)

it.live(
  "a copy that is interrupted has ended when that returns: nothing comes into the folder any more",
  () =>
    Effect.gen(function* () {
      const { from, into } = yield* folders
      const names = ["first", "second"]
      // Sparse: it takes long to copy and no room.
      for (const name of names) fs.truncateSync(made(path.join(from, name)), 8 * 1_073_741_824)
      let told = 0
      const fiber = yield* Effect.forkChild(
        copyFiles({
          from,
          into,
          what: listed(from, names),
          owner: undefined,
          onBytes: (bytes) => {
            told += bytes
          }
        })
      )
      yield* eventually(
        "it copies",
        Effect.sync(() => told > 0)
      )
      yield* Fiber.interrupt(fiber)
      const sizes = () =>
        names.map((name) => fs.statSync(path.join(into, name), { throwIfNoEntry: false })?.size)
      const before = sizes()
      assert.isBelow(before[0] ?? 0, 8 * 1_073_741_824)
      yield* Effect.sleep("200 millis")
      assert.deepStrictEqual(sizes(), before)
    }).pipe(Effect.scoped)
)

const made = (file: string) => {
  fs.writeFileSync(file, "")
  return file
}
