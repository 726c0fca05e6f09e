import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { pack, partsOf, unpack } from "#src/backups/repository/bundle.ts"

const inFolder = async (body: (folder: string) => Promise<void>) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
  try {
    await body(folder)
  } finally {
    fs.rmSync(folder, { recursive: true })
  }
}
const listed = (folder: string) =>
  fs
    .readdirSync(folder, { recursive: true, withFileTypes: true })
    .map((entry) => {
      const file = path.join(entry.parentPath, entry.name)
      const content = entry.isFile() ? fs.readFileSync(file).toString("base64") : "folder"
      return `${path.relative(folder, file)} ${content}`
    })
    .sort()

describe("a part of a base backup", () => {
  it("files and folders come back as they were, whatever the size of the parts and the order they are unpacked in", () =>
    inFolder(async (folder) => {
      const from = path.join(folder, "from")
      fs.mkdirSync(path.join(from, "base", "5"), { recursive: true })
      fs.mkdirSync(path.join(from, "pg_wal"))
      const sizes = { PG_VERSION: 3, "base/5/1": 0, "base/5/2": 8_192, "base/5/3": 3_000_000, "base/5/4": 1 }
      for (const [name, size] of Object.entries(sizes)) {
        fs.writeFileSync(path.join(from, name), randomBytes(size))
      }
      const files = Object.entries(sizes).map(([name, bytes]) => ({ path: name, bytes }))
      const what = { folders: ["base", "base/5", "pg_wal"], files, bytes: 0 }
      for (const size of [1_000, 5_000, 1 << 20, 1 << 30]) {
        const into = path.join(folder, `into-${size}`)
        fs.mkdirSync(into)
        let [read, written] = [0, 0]
        const parts = partsOf(what, size)
        assert.isTrue(size > 1_000 || parts.length > 3_000)
        for (const part of parts.toReversed()) {
          const content = pack(from, part, (bytes) => {
            read += bytes
          })
          await unpack(content, into, (bytes) => {
            written += bytes
          })
        }
        assert.deepStrictEqual(listed(into), listed(from), `parts of ${size}`)
        assert.deepStrictEqual([read, written], [3_008_196, 3_008_196])
      }
    }))

  it("a file that is gone or shorter is no fault, and one that grew is taken as long as it was", () =>
    inFolder(async (folder) => {
      const [from, into] = [path.join(folder, "from"), path.join(folder, "into")]
      fs.mkdirSync(from)
      fs.mkdirSync(into)
      fs.writeFileSync(path.join(from, "short"), "abc")
      fs.writeFileSync(path.join(from, "long"), "abcdefgh")
      const files = [
        { path: "gone", bytes: 10 },
        { path: "short", bytes: 10 },
        { path: "long", bytes: 4 }
      ]
      for (const part of partsOf({ folders: [], files, bytes: 24 })) {
        await unpack(
          pack(from, part, () => {}),
          into,
          () => {}
        )
      }
      assert.deepStrictEqual(fs.readdirSync(into).sort(), ["long", "short"])
      assert.strictEqual(fs.readFileSync(path.join(into, "short"), "utf8"), "abc")
      assert.strictEqual(fs.readFileSync(path.join(into, "long"), "utf8"), "abcd")
    }))

  it("a part that is cut off, goes on after its end, or leads out of the folder is refused", () =>
    inFolder(async (folder) => {
      const from = path.join(folder, "from")
      fs.mkdirSync(from)
      fs.writeFileSync(path.join(from, "file"), randomBytes(100))
      const content: Array<Uint8Array> = []
      for await (const chunk of pack(
        from,
        { folders: [], pieces: [{ path: "file", offset: 0, bytes: 100 }] },
        () => {}
      ))
        content.push(chunk)
      const whole = Buffer.concat(content)
      async function* of(...chunks: ReadonlyArray<Uint8Array>) {
        yield* chunks
      }
      const outcome = (bytes: Uint8Array) =>
        unpack(of(bytes), path.join(folder, "into"), () => {}).then(
          () => "taken",
          () => "refused"
        )
      assert.strictEqual(await outcome(whole), "taken")
      for (const bad of [whole.subarray(0, 20), whole.subarray(0, -5), Buffer.concat([whole, whole])]) {
        assert.strictEqual(await outcome(bad), "refused")
      }
      for (const name of ["../out", "/etc/out", "a/../../out", "."]) {
        const head = Buffer.from(JSON.stringify([name, 0]))
        const record = Buffer.concat([
          Buffer.from([2, 0, 0, 0, head.length]),
          head,
          Buffer.from([0, 0, 0, 0, 0])
        ])
        assert.strictEqual(await outcome(record), "refused", name)
      }
      assert.isFalse(fs.existsSync(path.join(folder, "out")))
    }))
})
