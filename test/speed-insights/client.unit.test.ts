import * as fs from "node:fs"
import { gzipSync } from "node:zlib"
import { assert, it } from "@effect/vitest"
import { clientFiles } from "#src/speed-insights/build-client.ts"

const folder = new URL("../../src/speed-insights/client/", import.meta.url)
const read = (name: string) => fs.readFileSync(new URL(name, folder), "utf8")

it("the program for pages is what its source makes: npm run build:client", async () => {
  for (const [name, code] of Object.entries(await clientFiles())) assert.strictEqual(read(name), code, name)
})

it("the program for pages is smaller than 4 kB as it is sent", () => {
  assert.isBelow(gzipSync(read("client.js"), { level: 9 }).length, 4_000)
})

it("bundlers find the module, its types and the version of web-vitals that it was made with", () => {
  const { exports: entries, dependencies, version } = JSON.parse(read("package.json"))
  const { default: module, types } = entries["."]
  assert.include(read(module), 'from "web-vitals"')
  // The types are those of the source.
  for (const part of read(types)
    .split("\n")
    .filter((line) => line.includes("readonly")))
    assert.include(read("start.ts"), part)
  assert.include(read("start.ts"), `"${version}"`)
  const root = JSON.parse(fs.readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
  assert.strictEqual(dependencies["web-vitals"], root.devDependencies["web-vitals"])
})
