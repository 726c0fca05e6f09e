/** Archives that are sent, and what is made of them. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { extract } from "tar-stream"
import { ArchiveRefused, repack } from "#src/builds/archive.ts"
import { digestOf, type Entry, file, folder, link, tar } from "./archives.ts"

const place = fs.mkdtempSync(path.join(os.tmpdir(), "svc-archive-"))
afterAll(() => fs.rmSync(place, { recursive: true }))
let count = 0

const bounds = { bytes: 1024 * 1024, entries: 20 }
const sent = async (content: Buffer | Readable, within = bounds) => {
  const target = path.join(place, String(count++))
  const done = await repack(
    content instanceof Readable ? content : Readable.from([content]),
    target,
    within,
    new AbortController().signal
  )
  return { ...done, target }
}
const refused = (content: Buffer | Readable, within = bounds) =>
  sent(content, within).then(
    () => "taken",
    (error: unknown) => (error instanceof ArchiveRefused ? error.code : String(error))
  )
const refusedOf = async (...entries: ReadonlyArray<Entry>) => refused(await tar(...entries))

const listed = async (target: string) => {
  const reader = extract()
  const seen: Array<ReadonlyArray<unknown>> = []
  reader.on("entry", (header, content, next) => {
    const { name, type, mode, uid, gid, linkname, mtime, size } = header
    seen.push([name, type, mode?.toString(8), uid, gid, mtime?.getTime(), linkname ?? size])
    content.resume()
    content.once("end", next)
  })
  await pipeline(fs.createReadStream(target), reader)
  return seen
}

describe("an archive of source", () => {
  it("is made anew: of one owner, with plain rights and no times", async () => {
    const { target, entries, facts } = await sent(
      await tar(
        folder("./"),
        file("./package.json", '{"name":"a"}', { mode: 0o6777, uid: 0, mtime: new Date() }),
        file("lib/deep/x.js", "1", { mode: 0o600 }),
        folder("lib/"),
        link("lib/deep/up", "../y.js")
      )
    )
    assert.deepStrictEqual(
      [entries, [...(facts.folders.get("") ?? [])].sort(), facts.texts.get("package.json")],
      [5, ["lib", "package.json"], '{"name":"a"}']
    )
    assert.deepStrictEqual(await listed(target), [
      ["./", "directory", "755", 1000, 1000, 0, 0],
      ["package.json", "file", "755", 1000, 1000, 0, 12],
      ["lib/deep/x.js", "file", "644", 1000, 1000, 0, 1],
      ["lib/", "directory", "755", 1000, 1000, 0, 0],
      ["lib/deep/up", "symlink", "777", 1000, 1000, 0, "../y.js"]
    ])
  })

  it("reads no package.json through a link", async () => {
    const { facts } = await sent(await tar(file("a", "{}"), link("package.json", "a")))
    assert.isFalse(facts.texts.has("package.json"))
  })

  it("is refused for entries that lead out, or are no files", async () => {
    const code = "archive_entry_refused"
    assert.strictEqual(await refusedOf(file("../x")), code)
    assert.strictEqual(await refusedOf(file("a/../../x")), code)
    assert.strictEqual(await refusedOf(file("/etc/passwd")), code)
    assert.strictEqual(await refusedOf(file("n".repeat(1_100))), code)
    for (const type of ["character-device", "block-device", "fifo", "link"] as const)
      assert.strictEqual(await refusedOf({ name: "x", type, linkname: "y" }), code, type)
  })

  it("is refused for links out of it, and for what is put through a link", async () => {
    const code = "archive_entry_refused"
    assert.strictEqual(await refusedOf(link("a", "/etc")), code)
    assert.strictEqual(await refusedOf(link("a", "..")), code)
    assert.strictEqual(await refusedOf(link("d/a", "../../x")), code)
    assert.strictEqual(await refusedOf(link("d", "."), link("x", "d/d/../..")), code)
    assert.strictEqual(await refusedOf(link("d", "e"), file("d/x")), code)
    assert.strictEqual(await refusedOf(file("d/x"), link("d", "e")), code)
    assert.strictEqual(await refusedOf(file("x", "1"), file("./x", "2")), code)
    assert.strictEqual(await refusedOf(file("e/y"), link("d/a", "../e/y"), link("b", "e")), "taken")
  })

  it("is bounded in bytes and entries", async () => {
    assert.strictEqual(await refusedOf(file("x", "x".repeat(bounds.bytes))), "archive_too_large")
    const many = Array.from({ length: 21 }, (_, index) => file(`f${index}`))
    assert.strictEqual(await refusedOf(...many), "archive_too_large")
  })

  it("counts folders that only paths tell of, and is bounded in depth", async () => {
    const deep = (depth: number) => file(`${"d/".repeat(depth - 1)}x`)
    assert.strictEqual(await refusedOf(deep(20)), "taken")
    assert.strictEqual(await refusedOf(deep(20), file("d/d/y")), "archive_too_large")
    assert.strictEqual(await refusedOf(deep(21)), "archive_too_large")
    const many = { ...bounds, entries: 1_000 }
    assert.strictEqual(await refused(await tar(deep(64)), many), "taken")
    assert.strictEqual(await refused(await tar(deep(65)), many), "archive_entry_refused")
  })

  it("has headers that fit into memory, however long those are that are sent", async () => {
    const code = "archive_entry_refused"
    const large = { bytes: 64 * 1024 * 1024, entries: 20 }
    const pax = (bytes: number) =>
      tar(file("first", "1"), file("x", "2", { pax: { comment: "c".repeat(bytes) } }))
    assert.strictEqual(await refused(await pax(60_000), large), "taken")
    assert.strictEqual(await refused(await pax(200_000), large), code)
    // It does not wait for the end of what it refuses.
    const whole = await pax(32 * 1024 * 1024)
    let given = 0
    const pieces = Readable.from(
      (function* () {
        for (let at = 0; at < whole.length; at += 65_536) {
          given += 65_536
          yield whole.subarray(at, at + 65_536)
        }
      })()
    )
    assert.strictEqual(await refused(pieces, large), code)
    assert.isBelow(given, 8 * 1024 * 1024)
    const records = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`k${index}`, "v"]))
    assert.strictEqual(await refusedOf(file("x", "1", { pax: records })), code)
    assert.strictEqual(
      await refused(await tar(file("big", "b".repeat(2_000_000)), file("next", "1")), large),
      "taken"
    )
  })

  it("has the digests of what was sent and of what is kept", async () => {
    const whole = await tar(file("x", "1", { mode: 0o600 }))
    const { digest, sent: read, target } = await sent(whole)
    assert.deepStrictEqual([read, digest], [digestOf(whole), digestOf(fs.readFileSync(target))])
    const { digest: same } = await sent(await tar(file("./x", "1", { uid: 7 })))
    assert.strictEqual(same, digest)
  })

  it("is refused if it is none, or is broken off", async () => {
    const whole = await tar(file("x", "x".repeat(4_000)))
    assert.strictEqual(await refused(Buffer.alloc(2_048, "no tar")), "archive_malformed")
    assert.strictEqual(await refused(whole.subarray(0, 2_000)), "archive_malformed")
  })
})
