/** From the files of a folder to how it is built and run. */
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { digestOf, makeFacts } from "#src/builds/facts.ts"
import { planOf } from "#src/builds/plan.ts"

const factsOf = (files: Readonly<Record<string, string>>) => {
  const { facts, interest, lock, note, text } = makeFacts()
  for (const [name, content] of Object.entries(files)) {
    note(name)
    const how = interest(name, content.length)
    if (how === "text") text(name, Buffer.from(content))
    if (how === "lock") lock(name, digestOf(Buffer.from(content)))
  }
  return facts()
}

const plan = (
  files: ReadonlyArray<string>,
  project?: object | string,
  more: Readonly<Record<string, string>> = {}
) =>
  Result.match(
    planOf(
      factsOf({
        ...Object.fromEntries(files.map((name) => [name, ""])),
        ...(project === undefined
          ? {}
          : { "package.json": typeof project === "string" ? project : JSON.stringify(project) }),
        ...more
      })
    ),
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

  it("does what svc.yaml says in place of what it would find out", () => {
    const by = (settings: string, project: object = { ...library, scripts }) =>
      plan(["package-lock.json", "index.html"], project, { "svc.yaml": settings })
    const told = by("organization: main\nbuild: { install: '', build: make it, start: ./it }")
    assert.deepStrictEqual([commands(told), startOf(told)], [["make it"], "./it"])
    const pages = by("build: { output: ./public/, fallback: true }")
    assert.deepStrictEqual(outputOf(pages), ["public", true])
    assert.deepStrictEqual(outputOf(plan(["a.txt"], undefined, { "svc.yaml": "build: { output: . }" })), [
      ".",
      false
    ])
    assert.strictEqual(startOf(by("organization: main")), "exec node server.js")
    assert.strictEqual(startOf(by("")), "exec node server.js")
    for (const bad of [
      "build: { root: ../x }",
      "build: { root: /x }",
      "build: { start: 1 }",
      "a: [",
      "build: { start: x, output: y }"
    ])
      assert.strictEqual(by(bad), "bad_settings", bad)
  })

  it("builds one app of several, and installs where the lock file is", () => {
    const found = plan(
      [],
      { workspaces: ["apps/*"], packageManager: "pnpm@9.1.0" },
      {
        "svc.yaml": "build: { root: apps/web }",
        "pnpm-lock.yaml": "",
        "apps/web/package.json": JSON.stringify({ scripts: { ...scripts, build: "x" } }),
        "apps/web/server.js": ""
      }
    )
    assert.deepStrictEqual(found, {
      kind: "server",
      root: "apps/web",
      steps: [
        { name: "install", command: "npx --yes pnpm@9.1.0 install --frozen-lockfile", folder: "." },
        { name: "build", command: "npx --yes pnpm@9.1.0 run build", folder: "apps/web" }
      ],
      warnings: [],
      start: "exec node server.js"
    })
    assert.strictEqual(plan([], { scripts }, { "svc.yaml": "build: { root: none }" }), "no_build_plan")
  })

  it("refuses by a code what it cannot build", () => {
    assert.strictEqual(plan(["main.py"]), "no_build_plan")
    assert.strictEqual(plan([], undefined, { Dockerfile: "FROM scratch" }), "dockerfile_unsupported")
    assert.strictEqual(plan([], "{"), "bad_package_json")
    assert.strictEqual(plan([], "[]"), "bad_package_json")
    assert.strictEqual(plan([], { scripts: { start: 1 } }), "bad_package_json")
    assert.strictEqual(plan(["package-lock.json", "yarn.lock"], { scripts }), "several_lockfiles")
    assert.strictEqual(plan(["bun.lock"], { scripts }), "package_manager_unsupported")
    assert.strictEqual(plan([], { scripts, packageManager: "pnpm@9; curl x" }), "package_manager_unsupported")
    assert.strictEqual(plan([], {}), "no_start_command")
  })

  it("builds by a Dockerfile where there is nothing else, or where svc.yaml names it", () => {
    const kindOf = (more: Readonly<Record<string, string>>, project?: object) => {
      const found = plan([], project, more)
      return typeof found === "string" ? found : found.kind
    }
    assert.strictEqual(kindOf({ Dockerfile: "FROM a" }), "dockerfile")
    assert.strictEqual(kindOf({ Dockerfile: "FROM a" }, { scripts }), "server")
    const named = { "svc.yaml": "build: { dockerfile: deploy/web.Dockerfile }" }
    assert.strictEqual(kindOf({ ...named, "deploy/web.Dockerfile": "FROM a" }, { scripts }), "dockerfile")
    assert.strictEqual(kindOf(named, { scripts }), "no_build_plan")
  })

  it("says that a Dockerfile beside a package.json is not used", () => {
    assert.match(JSON.stringify(plan(["Dockerfile"], { scripts })), /Dockerfile is not used/)
  })
})
