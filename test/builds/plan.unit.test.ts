/** From the files of a folder to how it is built and run. */
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { planOf } from "#src/builds/plan.ts"

const plan = (files: ReadonlyArray<string>, project?: object | string) =>
  Result.match(
    planOf({
      names: new Set(project === undefined ? files : [...files, "package.json"]),
      packageJson: project === undefined || typeof project === "string" ? project : JSON.stringify(project)
    }),
    {
      onSuccess: (one) => one,
      onFailure: ({ code }) => code
    }
  )
const commands = (planned: ReturnType<typeof plan>) =>
  typeof planned === "string" ? planned : planned.steps.map(({ command }) => command)
const startOf = (planned: ReturnType<typeof plan>) =>
  typeof planned !== "string" && planned.kind === "server" ? planned.start : planned
const outputOf = (planned: ReturnType<typeof plan>) =>
  typeof planned !== "string" && planned.kind === "static" ? [planned.output, planned.fallback] : planned

const library = { dependencies: { hono: "^4" } }
const scripts = { start: "node server.js" }

describe("the plan of a build", () => {
  it("serves a folder with an index.html as it is", () => {
    const bare = { kind: "static", steps: [], warnings: [], output: ".", fallback: false } as const
    assert.deepStrictEqual(plan(["index.html", "style.css"]), bare)
    assert.deepStrictEqual(plan(["index.html"], { name: "page" }), bare)
  })

  it("installs by the lock file", () => {
    const by = (lock: string, more = {}) => commands(plan([lock], { ...library, scripts, ...more }))
    assert.deepStrictEqual(by("package-lock.json"), ["npm ci --no-audit --no-fund"])
    assert.deepStrictEqual(by("pnpm-lock.yaml"), ["npx --yes pnpm@10 install --frozen-lockfile"])
    assert.deepStrictEqual(by("pnpm-lock.yaml", { packageManager: "pnpm@9.1.0+sha512.abc" }), [
      "npx --yes pnpm@9.1.0 install --frozen-lockfile"
    ])
    assert.deepStrictEqual(by("yarn.lock"), ["npx --yes yarn@1 install --frozen-lockfile"])
    assert.deepStrictEqual(by("yarn.lock", { packageManager: "yarn@4.5.0" }), [
      "npx --yes --package=@yarnpkg/cli-dist@4.5.0 yarn install --immutable"
    ])
  })

  it("installs nothing where nothing is needed, and warns where nothing is locked", () => {
    assert.deepStrictEqual(commands(plan(["server.js"], { scripts })), [])
    const unlocked = plan([], { ...library, scripts })
    assert.deepStrictEqual(commands(unlocked), ["npm install --no-audit --no-fund"])
    assert.match(JSON.stringify(unlocked), /no lock file/)
  })

  it("builds, and takes away what was for the build only", () => {
    const project = {
      ...library,
      devDependencies: { typescript: "^5" },
      scripts: { ...scripts, build: "tsc" }
    }
    assert.deepStrictEqual(commands(plan(["package-lock.json"], project)), [
      "npm ci --no-audit --no-fund",
      "npm run build",
      "npm prune --omit=dev --no-audit --no-fund"
    ])
  })

  it("starts by the script, by the main file, or by the framework", () => {
    assert.strictEqual(startOf(plan([], { scripts })), "exec node server.js")
    assert.strictEqual(startOf(plan([], { scripts: { start: "A=1 node x" } })), "A=1 node x")
    assert.strictEqual(startOf(plan([], { scripts: { start: "node a && node b" } })), "node a && node b")
    assert.strictEqual(startOf(plan([], { scripts: { ...scripts, prestart: "x" } })), "exec npm run start")
    assert.strictEqual(startOf(plan(["app.js"], { main: "./app.js" })), "exec node 'app.js'")
    assert.strictEqual(startOf(plan(["server.js"], {})), "exec node 'server.js'")
    const next = { dependencies: { next: "^16" }, scripts: { build: "next build" } }
    assert.strictEqual(startOf(plan([], next)), 'exec next start -p "$PORT"')
    const nuxt = { devDependencies: { nuxt: "^4", vite: "^7" }, scripts: { build: "nuxt build" } }
    assert.strictEqual(startOf(plan([], nuxt)), "exec node .output/server/index.mjs")
  })

  it("serves what frameworks of files build, with a fallback for single-page apps", () => {
    const of = (name: string, more = {}) => ({
      devDependencies: { [name]: "*" },
      scripts: { build: `${name} build`, ...more }
    })
    assert.deepStrictEqual(outputOf(plan([], of("vite", { start: "vite --port 3000" }))), ["dist", true])
    assert.deepStrictEqual(outputOf(plan([], of("react-scripts"))), ["build", true])
    assert.deepStrictEqual(outputOf(plan([], of("astro"))), ["dist", false])
    assert.deepStrictEqual(outputOf(plan([], of("vitepress"))), [".vitepress/dist", false])
    // A server that was made with it is none.
    assert.strictEqual(startOf(plan([], of("vite", scripts))), "exec node server.js")
  })

  it("refuses by a code what it cannot build", () => {
    assert.strictEqual(plan(["main.py"]), "no_build_plan")
    assert.strictEqual(plan(["Dockerfile"]), "dockerfile_unsupported")
    assert.strictEqual(plan([], "{"), "bad_package_json")
    assert.strictEqual(plan([], "[]"), "bad_package_json")
    assert.strictEqual(plan([], { scripts: { start: 1 } }), "bad_package_json")
    assert.strictEqual(plan(["package-lock.json", "yarn.lock"], { scripts }), "several_lockfiles")
    assert.strictEqual(plan(["bun.lock"], { scripts }), "package_manager_unsupported")
    assert.strictEqual(plan([], { scripts, packageManager: "pnpm@9; curl x" }), "package_manager_unsupported")
    assert.strictEqual(plan([], {}), "no_start_command")
  })

  it("says that a Dockerfile beside a package.json is not used", () => {
    assert.match(JSON.stringify(plan(["Dockerfile"], { scripts })), /Dockerfile is not used/)
  })
})
