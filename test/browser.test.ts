/** Schemas and definitions of operations load in a browser, where a dashboard uses them. */
import * as fs from "node:fs"
import { isBuiltin } from "node:module"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import { rolldown } from "rolldown"

const root = fileURLToPath(new URL("../", import.meta.url))
const filesIn = (folder: string) =>
  fs
    .readdirSync(`${root}${folder}`)
    .filter((name) => name.endsWith(".ts"))
    .map((name) => `${folder}/${name}`)

/** What modules of Node each of these files asks for, itself or by what it imports. */
const nodeModulesOf = async (input: ReadonlyArray<string>) => {
  const found: Array<string> = []
  let modules = 0
  const bundle = await rolldown({
    cwd: root,
    input: Object.fromEntries(input.map((file) => [file.replaceAll("/", "_"), `${root}${file}`])),
    platform: "browser",
    logLevel: "silent",
    plugins: [
      {
        name: "browser",
        resolveId(source, importer, { kind }) {
          // Loaded by whoever has Node, when it is used.
          if (kind === "dynamic-import") return { id: source, external: true }
          if (!isBuiltin(source)) return null
          found.push(`${importer?.replace(root, "")} imports ${source}`)
          return { id: source, external: true }
        },
        transform() {
          modules++
        }
      }
    ]
  })
  const { output } = await bundle.generate({ format: "esm" })
  await bundle.close()
  return { found, modules, output }
}

it("schemas, definitions and the list of features import nothing of Node", async () => {
  const { found, modules, output } = await nodeModulesOf([
    ...filesIn("schemas"),
    ...filesIn("src/api/definition"),
    "src/features.ts"
  ])
  assert.isAbove(modules, 100)
  assert.isAbove(output.length, 40)
  assert.deepStrictEqual(found, [])
})

it("a module of Node that is imported far below is found", async () => {
  const { found } = await nodeModulesOf(["src/queues/server.ts"])
  assert.include(found.join("\n"), "imports node:crypto")
})
