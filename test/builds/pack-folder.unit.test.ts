/** What of a folder is sent. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Readable } from "node:stream"
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { repack } from "#src/builds/archive.ts"
import { factsOf, packFolder, sourceFiles } from "#src/builds/pack-folder.ts"
import { planOf } from "#src/builds/plan.ts"
import { digestOf } from "./archives.ts"
import { exampleFolder } from "./example-folder.ts"

const place = fs.mkdtempSync(path.join(os.tmpdir(), "svc-folder-"))
afterAll(() => fs.rmSync(place, { recursive: true }))

const made = (name: string, files: Readonly<Record<string, string>>) => {
  const root = path.join(place, name)
  for (const [file, content] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(root, file)), { recursive: true })
    fs.writeFileSync(path.join(root, file), content)
  }
  return root
}
const namesIn = (root: string) => sourceFiles(root).map(({ name }) => name)
const { signal } = new AbortController()

it("the example app is installed by its lock file and started, without further words", () => {
  const planned = planOf(factsOf(exampleFolder, sourceFiles(exampleFolder)))
  if (Result.isFailure(planned)) throw planned.failure
  const { kind, steps, warnings, ...rest } = planned.success
  assert.deepStrictEqual(
    [kind, steps.map(({ name }) => name), warnings, "start" in rest && rest.start],
    ["server", ["install"], [], "exec node server.js"]
  )
})

describe("the source in a folder", () => {
  it("leaves out what is ignored, in each folder by its own rules, and what is made anew", () => {
    const root = made("rules", {
      ".gitignore": "*.log\n/dist\nsecret/\n",
      ".svcignore": "docs\n",
      "a.log": "",
      "dist/x": "",
      "docs/x": "",
      "secret/key": "",
      "node_modules/lib/x": "",
      ".git/config": "",
      "src/dist/kept": "",
      "src/.gitignore": "!keep.log\ntmp*\n",
      "src/keep.log": "",
      "src/tmp1": ""
    })
    assert.deepStrictEqual(namesIn(root), [
      ".gitignore",
      ".svcignore",
      "src",
      "src/.gitignore",
      "src/dist",
      "src/dist/kept",
      "src/keep.log"
    ])
  })

  it("gives the same archive for the same files, which is taken as it is", async () => {
    const files = { "package.json": "{}", "bin/run": "1", empty: "" }
    const [one, two] = [made("one", files), made("two", files)]
    fs.chmodSync(path.join(one, "bin/run"), 0o700)
    fs.chmodSync(path.join(two, "bin/run"), 0o755)
    for (const root of [one, two]) fs.symlinkSync("bin/run", path.join(root, "link"))
    fs.utimesSync(path.join(two, "empty"), 1, 1)
    const [first, second] = await Promise.all(
      [one, two].map((root) => packFolder(root, sourceFiles(root), `${root}.tar`, signal))
    )
    assert.strictEqual(first, second)
    const content = fs.readFileSync(`${one}.tar`)
    assert.strictEqual(first, digestOf(content))
    const bounds = { bytes: 100_000, entries: 10 }
    const taken = await repack(Readable.from([content]), `${one}.new`, bounds, signal)
    assert.strictEqual(taken.entries, 5)
    assert.deepStrictEqual(taken.facts, factsOf(one, sourceFiles(one)))
  })
})
