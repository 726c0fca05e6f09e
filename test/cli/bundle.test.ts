/** The program in few files: made once, used while the source is what it was made from, and not a moment longer. */
import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"

const project = fileURLToPath(new URL("../../", import.meta.url))
const said = "from the source"

/** A project of few files, started as this one is. */
const makeProject = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bundle-"))
    const write = (name: string, text: string) => {
      fs.mkdirSync(path.dirname(path.join(folder, name)), { recursive: true })
      fs.writeFileSync(path.join(folder, name), text)
    }
    for (const name of ["src/cli/svc.mjs", "src/cli/bundle/fresh.mjs", "src/cli/bundle/build.ts"])
      write(name, fs.readFileSync(path.join(project, name), "utf8"))
    fs.cpSync(path.join(project, "package.json"), path.join(folder, "package.json"))
    for (const name of ["schemas", "reconcilers", "node_modules"]) fs.mkdirSync(path.join(folder, name))
    write("node_modules/.package-lock.json", "{}")
    for (const name of ["rolldown", "@rolldown", "@oxc-project"])
      fs.symlinkSync(path.join(project, "node_modules", name), path.join(folder, "node_modules", name))
    write("src/text.txt", "what stands beside the source\n")
    write(
      "src/cli/a-thread.ts",
      `import { readFileSync } from "node:fs"
import { parentPort } from "node:worker_threads"
import "./shared.ts"
const text: string = readFileSync(new URL("../text.txt", import.meta.url), "utf8").trim()
parentPort?.postMessage(\`\${text}, in a thread\`)
`
    )
    write("src/cli/shared.ts", `if (process.argv[2] === "names") console.log("shared")`)
    write(
      "src/cli/main.ts",
      `import { readFileSync } from "node:fs"
import { Worker } from "node:worker_threads"
import "./shared.ts"
console.log(new Error().stack?.includes("svc-program") ? "from the bundle" : "${said}")
console.log(readFileSync(new URL("../text.txt", import.meta.url), "utf8").trim())
new Worker(new URL("./a-thread.ts", import.meta.url)).on("message", console.log)
`
    )
    return folder
  }),
  (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
)

/** The bundles that are there whole. */
const bundlesOf = (folder: string) => {
  const all = path.join(folder, "node_modules/.cache/svc-program")
  return fs
    .readdirSync(all)
    .map((name) => path.join(all, name))
    .filter((name) => fs.existsSync(path.join(name, "main.js")))
}

/** Every file says what it is: guessing would compile it once more. */
const flag = "--no-experimental-detect-module"

const run = (folder: string, program: string) =>
  Effect.promise(async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [flag, path.join(folder, program)], {
      cwd: folder
    })
    return stdout.trim().split("\n")
  })

it.live("a bundle does what its source does, and only while it is of that source", () =>
  Effect.gen(function* () {
    const folder = yield* makeProject
    const svc = () => run(folder, "src/cli/svc.mjs")
    const bySource = [said, "what stands beside the source", "what stands beside the source, in a thread"]
    assert.deepStrictEqual(yield* svc(), bySource)
    yield* run(folder, "src/cli/bundle/build.ts")
    const [how, ...rest] = yield* svc()
    assert.strictEqual(how, "from the bundle")
    assert.deepStrictEqual(rest, bySource.slice(1))
    // A thread loads what it needs and not the program.
    const [first = ""] = bundlesOf(folder)
    const thread = fs.readFileSync(path.join(first, "a-thread.js"), "utf8")
    assert.match(thread, /"\.\/a-thread-/)
    assert.notMatch(thread, /main/)
    const main = path.join(folder, "src/cli/main.ts")
    fs.writeFileSync(main, fs.readFileSync(main, "utf8").replace(said, "from what was changed"))
    assert.strictEqual((yield* svc())[0], "from what was changed")
    yield* run(folder, "src/cli/bundle/build.ts")
    assert.strictEqual((yield* svc())[0], "from the bundle")
  })
)

it.live("a program that runs keeps its files when it is built again, until it is two builds old", () =>
  Effect.gen(function* () {
    const folder = yield* makeProject
    const build = run(folder, "src/cli/bundle/build.ts")
    const main = path.join(folder, "src/cli/main.ts")
    const source = fs.readFileSync(main, "utf8")
    const made: Array<string> = []
    for (const n of [1, 2, 3]) {
      // As built some time before the next.
      for (const [index, one] of made.entries()) fs.utimesSync(one, index, index)
      fs.writeFileSync(main, `${source}// ${"x".repeat(n)}\n`)
      yield* build
      const [more, ...others] = bundlesOf(folder).filter((name) => !made.includes(name))
      assert.isEmpty(others)
      made.push(more ?? "")
      if (n === 2) {
        const [one] = made
        const running = yield* run(folder, path.relative(folder, path.join(one ?? "", "main.js")))
        assert.strictEqual(running[2], "what stands beside the source, in a thread")
      }
    }
    assert.sameMembers(bundlesOf(folder), made.slice(1))
    const all = fs.readdirSync(path.join(folder, "node_modules/.cache/svc-program"))
    assert.lengthOf(all, 2, "nothing half made stays")
    yield* build
    assert.sameMembers(bundlesOf(folder), made.slice(1))
  })
)
