/** From the files of a folder to how it is built and run. */
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { Runtime } from "#schemas/build-plan.ts"
import { BaseImages, baseImagesOf, chooseBase, defaultBaseImages } from "#src/builds/base-images.ts"
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
    assert.strictEqual(plan(["main.rb"]), "no_build_plan")
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

  const runtimeOf = (found: ReturnType<typeof plan>) =>
    typeof found === "string" || found.kind === "dockerfile"
      ? found
      : found.runtime && [found.runtime.versions, found.runtime.saidBy]

  it("asks for the version of Node that svc.yaml, a version file or package.json says", () => {
    const by = (more: Readonly<Record<string, string>>, project: object = { scripts }) =>
      runtimeOf(plan([], project, more))
    assert.isUndefined(by({}))
    const engines = { scripts, engines: { node: ">=18 <23" } }
    assert.deepStrictEqual(by({}, engines), [">=18 <23", "engines in package.json"])
    assert.deepStrictEqual(by({ ".node-version": "v20.1.0\n" }, engines), ["v20.1.0", ".node-version"])
    assert.deepStrictEqual(by({ ".node-version": "20", ".nvmrc": "lts/jod # long" }), ["22", ".nvmrc"])
    assert.deepStrictEqual(by({ ".nvmrc": "20", "svc.yaml": 'build: { nodeVersion: "24" }' }), [
      "24",
      "nodeVersion in svc.yaml"
    ])
    for (const any of ["lts/*", "node"]) assert.isUndefined(by({ ".nvmrc": any }, engines), any)
    // As npm has it.
    assert.isUndefined(by({}, { scripts, engines: { node: "the newest" } }))
    assert.strictEqual(by({ ".nvmrc": "iojs" }), "bad_settings")
    assert.strictEqual(by({ ".nvmrc": "constructor" }), "bad_settings")
    assert.strictEqual(by({ "svc.yaml": "build: { nodeVersion: 22 }" }), "bad_settings")
  })

  it("installs packages of Python by what names them, and starts what they are for", () => {
    const by = (more: Readonly<Record<string, string>>) => {
      const found = plan([], undefined, more)
      return [[commands(found)].flat(), startOf(found)] as const
    }
    const [[pip], start] = by({ "requirements.txt": "Flask==3.1\ngunicorn", "app.py": "" })
    assert.match(String(pip), /venv --clear .venv\n.venv\/bin\/pip install -r requirements.txt$/)
    assert.strictEqual(start, 'exec gunicorn app:app --bind 0.0.0.0:"$PORT"')
    const project = '[project]\ndependencies = ["fastapi[standard]>=0.1"]\nrequires-python = ">=3.11,<3.14"'
    const [[uv], served] = by({ "pyproject.toml": project, "uv.lock": "", "main.py": "" })
    assert.match(String(uv), /'uv<1'\n\/tmp\/uv\/bin\/uv sync --frozen --no-dev$/)
    assert.strictEqual(served, 'exec uvicorn main:app --host 0.0.0.0 --port "$PORT"')
    const [[poetry]] = by({ "pyproject.toml": project, "poetry.lock": "", "main.py": "" })
    assert.match(String(poetry), /poetry install --only main --no-root/)
    const site = { "manage.py": "", "shop/wsgi.py": "", "requirements.txt": "django\ngunicorn" }
    assert.strictEqual(by(site)[1], 'exec gunicorn shop.wsgi --bind 0.0.0.0:"$PORT"')
    assert.strictEqual(by({ ...site, "requirements.txt": "django" })[1], "no_start_command")
    assert.strictEqual(by({ ...site, Procfile: "release: x\nweb: ./run it\n" })[1], "./run it")
    assert.deepStrictEqual(by({ "main.py": "", "requirements.txt": "flaskish" })[1], "exec python3 main.py")
  })

  it("asks for the version of Python or Go that the project says", () => {
    const by = (more: Readonly<Record<string, string>>) => runtimeOf(plan(["main.py"], undefined, more))
    const project = (text: string) => ({ "pyproject.toml": `[project]\nrequires-python = "${text}"\n` })
    assert.deepStrictEqual(by(project(">=3.11, <3.14, !=3.12.1")), [">=3.11 <3.14", "pyproject.toml"])
    assert.deepStrictEqual(by(project("~=3.11")), [">=3.11 <4", "pyproject.toml"])
    assert.deepStrictEqual(by(project("==3.12.*")), ["3.12", "pyproject.toml"])
    assert.deepStrictEqual(by({ ".python-version": "3.12.4\n", ...project(">=3") }), [
      "3.12.4",
      ".python-version"
    ])
    const goes = plan(["main.go"], undefined, { "go.mod": "module a\n\ngo 1.24.1\n" })
    assert.deepStrictEqual(runtimeOf(goes), [">=1.24.1", "go.mod"])
    assert.deepStrictEqual(commands(goes), ["go mod download", "go build -trimpath -o .svc-app ."])
    assert.strictEqual(startOf(goes), "exec ./.svc-app")
    const below = (...names: ReadonlyArray<string>) => commands(plan(names, undefined, { "go.mod": "" }))
    assert.deepStrictEqual(below("cmd/web/main.go").at(-1), "go build -trimpath -o .svc-app './cmd/web'")
    assert.strictEqual(below("cmd/web/a.go", "cmd/job/b.go"), "no_start_command")
  })

  it("takes a Dockerfile before Python and Go, and what svc.yaml says before both", () => {
    const files = { Dockerfile: "FROM a", "requirements.txt": "", "main.py": "", "package.json": "{}" }
    const { "package.json": _, ...bare } = files
    const found = plan([], undefined, bare)
    assert.strictEqual(typeof found === "string" ? found : found.kind, "dockerfile")
    const said = plan([], undefined, { ...files, "svc.yaml": "build: { runtime: python }" })
    assert.strictEqual(startOf(said), "exec python3 main.py")
  })
})

describe("the image that an app is built on", () => {
  const images = baseImagesOf("node@26=a/node:26, node@24=a/node:24,python@3.13=a/py:3.13")
  const chosen = (name: Runtime["name"], versions: string | null) =>
    Result.match(chooseBase(images, { name, versions, saidBy: versions && ".nvmrc" }), {
      onSuccess: ({ reference }) => reference,
      onFailure: (message) => message
    })

  it("is the first that has a version which is asked for", () => {
    assert.strictEqual(chosen("node", null), "a/node:26")
    assert.strictEqual(chosen("node", ">=18"), "a/node:26")
    assert.strictEqual(chosen("node", "v24.3.1"), "a/node:24")
    assert.strictEqual(chosen("node", "^22 || ^24"), "a/node:24")
    assert.strictEqual(chosen("python", ">=3.11 <4"), "a/py:3.13")
    assert.strictEqual(Result.getOrThrow(chooseBase(images)).reference, "a/node:26")
  })

  it("is none where there is no such version, and what there is is named", () => {
    assert.strictEqual(
      chosen("node", "22"),
      "Node 22 (.nvmrc) is not here; there is 26, 24. nodeVersion in svc.yaml chooses another one"
    )
    assert.match(chosen("python", ">=3.14"), /there is 3.13/)
    assert.match(chosen("go", null), /Nothing is built for Go here/)
  })

  it("is an official one of the version that is asked for, where the operator names none", () => {
    const official = baseImagesOf(Schema.decodeSync(BaseImages)(defaultBaseImages))
    const base = (name: Runtime["name"], versions: string | null) =>
      Result.getOrThrow(chooseBase(official, { name, versions, saidBy: ".nvmrc" })).reference
    assert.strictEqual(base("node", null), "docker.io/library/node:26-slim")
    assert.strictEqual(base("node", "24"), "docker.io/library/node:24-slim")
    assert.strictEqual(base("node", "^22.1.0"), "docker.io/library/node:22-slim")
    assert.strictEqual(base("python", ">=3.11"), "docker.io/library/python:3.13-slim")
    assert.strictEqual(base("go", ">=1.23"), "docker.io/library/golang:1.25")
    const none = chooseBase(official, { name: "node", versions: "20", saidBy: ".nvmrc" })
    assert.isTrue(Result.isFailure(none))
  })

  it("without a version is for every version", () => {
    const [only] = baseImagesOf("docker.io/library/node:26-slim@sha256:ab")
    assert.deepStrictEqual(only, {
      runtime: "node",
      version: undefined,
      reference: "docker.io/library/node:26-slim@sha256:ab"
    })
    assert.isTrue(
      Result.isSuccess(chooseBase(only ? [only] : [], { name: "node", versions: "18", saidBy: "x" }))
    )
    for (const bad of ["ruby=a", "node@x=a", "node@26=", "a b"])
      assert.throws(() => Schema.decodeSync(BaseImages)(bad), /must not have/, bad)
  })
})
