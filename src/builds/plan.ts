/**
 * From what is in a folder to how it is built and run: by its files, and by what its `svc.yaml` says otherwise. Pure, so
 * that the command line shows the plan that the server makes.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { BuildPlan, Runtime } from "#schemas/build-plan.ts"
import { type BuildSettings, settingsOf } from "./build-settings.ts"
import { areFew, longestPatterns } from "./dockerfile/glob.ts"
import { parseDockerfile } from "./dockerfile/parse.ts"
import { folderOf, type SourceFacts, settingsFile } from "./facts.ts"
import { buildOfGo, requiredGo, startOfGo } from "./go.ts"
import { installOf, lockfiles, managerOf, type PackageManager } from "./package-managers.ts"
import { PlanRefused } from "./plan-refused.ts"
import { installOfPython, isPython, requiredPython, startOfPython } from "./python.ts"
import { nodeVersion, pythonVersions, wanted } from "./versions.ts"

type Planned = Result.Result<BuildPlan, PlanRefused>

const Package = Schema.fromJsonString(
  Schema.Struct({
    main: Schema.optionalKey(Schema.String),
    packageManager: Schema.optionalKey(Schema.String),
    scripts: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
    dependencies: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
    devDependencies: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
    engines: Schema.optionalKey(Schema.Struct({ node: Schema.optionalKey(Schema.String) }))
  })
)
type Package = typeof Package.Type
const decode = Schema.decodeUnknownResult(Package)

/** Frameworks whose build is a program, by a package that such an app depends on, and what starts it. */
const serverFrameworks: ReadonlyArray<readonly [name: string, start: string]> = [
  ["next", 'next start -p "$PORT"'],
  ["nuxt", "node .output/server/index.mjs"],
  ["@sveltejs/adapter-node", "node build"],
  ["@react-router/serve", "react-router-serve build/server/index.js"],
  ["@remix-run/serve", "remix-serve build/server/index.js"],
  ["@astrojs/node", "node dist/server/entry.mjs"]
]

/** Frameworks whose build is a folder of files, that folder, and whether it is one page for all paths. */
const staticFrameworks: ReadonlyArray<readonly [name: string, output: string, fallback: boolean]> = [
  ["@sveltejs/adapter-static", "build", false],
  ["astro", "dist", false],
  ["vitepress", ".vitepress/dist", false],
  ["@11ty/eleventy", "_site", false],
  ["gatsby", "public", false],
  ["react-scripts", "build", true],
  ["vite", "dist", true]
]

/** Scripts named `start` that serve while somebody develops. */
const servesDevelopment = /^(vite|astro|vitepress|eleventy|gatsby|react-scripts|serve)\b/

const refuse = (code: PlanRefused["code"], message: string): Planned =>
  Result.fail(new PlanRefused({ code, message }))

/** Path of a folder within the source; empty: the source itself. */
const cleanOf = (path: string): string =>
  path
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .join("/")
const inside = (folder: string, name: string) => (folder === "" ? name : `${folder}/${name}`)
const shownOf = (folder: string) => (folder === "" ? "." : folder)

export const planOf = (facts: SourceFacts): Planned => {
  const settings = settingsOf(facts.texts.get(settingsFile))
  if (Result.isFailure(settings)) return Result.fail(settings.failure)
  const given = settings.success
  const root = cleanOf(given.root ?? "")
  const names = facts.folders.get(root)
  if (names === undefined) return refuse("no_build_plan", `There is no folder ${root}`)
  const dockerfile = given.dockerfile ?? dockerfileNames.find((name) => names.has(name))
  if (given.dockerfile !== undefined) return byDockerfile(facts, root, given.dockerfile)
  const packageJson = facts.texts.get(inside(root, "package.json"))
  const saysHow = given.start !== undefined || given.output !== undefined
  const isNode = given.runtime === undefined ? packageJson !== undefined : given.runtime === "node"
  if (!isNode || packageJson === undefined) {
    if (dockerfile !== undefined && !saysHow && given.runtime === undefined)
      return byDockerfile(facts, root, dockerfile)
    const runtime = given.runtime ?? (names.has("go.mod") ? "go" : isPython(names) ? "python" : undefined)
    if (runtime === "python" || runtime === "go") return planOfOther(facts, root, given, runtime)
    if (saysHow) return planned({ facts, root, given }, "node", given)
    if (names.has("index.html")) return Result.succeed(asItIs(root, []))
    return refuse(
      "no_build_plan",
      "This folder has no package.json, index.html or Dockerfile, and nothing of Python or Go"
    )
  }
  const decoded = decode(packageJson)
  if (Result.isFailure(decoded))
    return refuse("bad_package_json", "package.json is not the JSON that npm describes")
  const project = decoded.success
  const locked = lockFolder(facts, root)
  const above = decodeAbove(facts, locked)
  const manager = managerOf(
    facts.folders.get(locked) ?? names,
    project.packageManager ?? above?.packageManager
  )
  if (Result.isFailure(manager)) return Result.fail(manager.failure)
  const found = planOfPackage(
    { names, root, locked, project, given, hasDockerfile: dockerfile !== undefined },
    manager.success
  )
  return Result.flatMap(found, (plan) =>
    on(plan, versionsOf(facts, root, given, "node", project.engines?.node))
  )
}

/** Where a version may be said, the more particular first. */
const versionsOf = (
  { texts }: SourceFacts,
  root: string,
  given: BuildSettings,
  name: Runtime["name"],
  nodeEngine?: string
) => {
  const setting = { by: `${name}Version in svc.yaml`, text: given[`${name}Version`] }
  const at = (file: string) => texts.get(inside(root, file)) ?? texts.get(file)
  switch (name) {
    case "node":
      return wanted(name, [
        { ...setting, read: nodeVersion },
        { by: ".nvmrc", text: at(".nvmrc"), read: nodeVersion },
        { by: ".node-version", text: at(".node-version"), read: nodeVersion },
        { by: "engines in package.json", text: nodeEngine, read: (text) => text, lenient: true }
      ])
    case "python":
      return wanted(name, [
        { ...setting, read: pythonVersions },
        { by: ".python-version", text: at(".python-version"), read: pythonVersions },
        {
          by: "pyproject.toml",
          text: requiredPython(texts.get(inside(root, "pyproject.toml"))),
          read: pythonVersions,
          lenient: true
        }
      ])
    case "go":
      return wanted(name, [
        { ...setting, read: (text) => text },
        { by: "go.mod", text: requiredGo(texts.get(inside(root, "go.mod"))), read: (text) => text }
      ])
  }
}

/** Node of any version is what goes without saying. */
const on = (plan: BuildPlan, runtime: Result.Result<Runtime, PlanRefused>): Planned =>
  Result.map(runtime, (one) =>
    plan.kind === "dockerfile" || (one.name === "node" && one.versions === null)
      ? plan
      : { ...plan, runtime: one }
  )

interface Steps {
  readonly install?: string | undefined
  readonly build?: string | undefined
  readonly start?: string | undefined
}
const planned = (
  {
    facts,
    root,
    given
  }: { readonly facts: SourceFacts; readonly root: string; readonly given: BuildSettings },
  name: Runtime["name"],
  { install, build, start = "" }: Steps
): Planned => {
  const steps = [...stepOf("install", install, root), ...stepOf("build", build, root)]
  return on(ended(given, root, steps, [], start), versionsOf(facts, root, given, name))
}

const planOfOther = (
  facts: SourceFacts,
  root: string,
  given: BuildSettings,
  name: "python" | "go"
): Planned => {
  const at = (file: string) => (file === "" ? root : inside(root, file))
  const names = facts.folders.get(root) ?? new Set<string>()
  const procfile = /^web:\s*(.+)$/m.exec(facts.texts.get(at("Procfile")) ?? "")?.[1]?.trim()
  const place = { facts, root, given }
  if (name === "go") {
    const build = given.build === undefined ? buildOfGo(facts, at) : Result.succeed(given.build)
    return Result.flatMap(build, (build) =>
      planned(place, name, { install: "go mod download", start: procfile ?? startOfGo, ...given, build })
    )
  }
  const start = given.start ?? procfile ?? startOfPython(facts, at)
  if (start === undefined && given.output === undefined)
    return refuse(
      "no_start_command",
      names.has("manage.py")
        ? "What starts this site is unknown: gunicorn is none of its packages, or there is no wsgi.py"
        : "There is no main.py, app.py or server.py, and no line web: in a Procfile"
    )
  return planned(place, name, { install: installOfPython(names), ...given, start })
}

const byDockerfile = (facts: SourceFacts, root: string, named: string): Planned => {
  const text = facts.texts.get(cleanOf(inside(root, named)))
  if (text === undefined)
    return refuse("no_build_plan", `There is no ${named}, or it is too long, or not named as Dockerfiles are`)
  const ignored = facts.texts.get(inside(root, ".dockerignore")) ?? ""
  if (!areFew(ignored))
    return refuse(
      "dockerfile_unsupported",
      `.dockerignore has more than ${longestPatterns} characters of patterns`
    )
  return Result.map(parseDockerfile(text), (stages) => ({
    kind: "dockerfile",
    steps: [],
    warnings: [],
    root: shownOf(root),
    stages,
    ignored
  }))
}

const dockerfileNames = ["Dockerfile", "Containerfile"]

/** The nearest folder upwards that has a lock file: packages are installed there for all that lies below it. */
const lockFolder = ({ folders }: SourceFacts, root: string): string => {
  for (let folder = root; ; folder = folderOf(folder)) {
    const names = folders.get(folder)
    if (lockfiles.some(([file]) => names?.has(file) === true)) return folder
    if (folder === "") return root
  }
}

const decodeAbove = ({ texts }: SourceFacts, folder: string): Package | undefined => {
  const found = decode(texts.get(inside(folder, "package.json")))
  return Result.isSuccess(found) ? found.success : undefined
}

type Step = BuildPlan["steps"][number]
const stepOf = (name: Step["name"], command: string | undefined, folder: string): ReadonlyArray<Step> =>
  command === undefined || command.trim() === "" ? [] : [{ name, command, folder: shownOf(folder) }]

/** How it ends: as the settings say, or with this command. */
const ended = (
  { output, fallback }: BuildSettings,
  root: string,
  steps: ReadonlyArray<Step>,
  warnings: ReadonlyArray<string>,
  start: string
): BuildPlan =>
  output === undefined
    ? { kind: "server", root: shownOf(root), steps, warnings, start }
    : {
        kind: "static",
        steps,
        warnings,
        output: shownOf(cleanOf(inside(root, output))),
        fallback: fallback ?? false
      }

const asItIs = (root: string, warnings: ReadonlyArray<string>): BuildPlan => ({
  kind: "static",
  steps: [],
  warnings,
  output: shownOf(root),
  fallback: false
})

interface Found {
  readonly names: ReadonlySet<string>
  readonly root: string
  /** Folder of the lock file. */
  readonly locked: string
  readonly project: Package
  readonly given: BuildSettings
  readonly hasDockerfile: boolean
}

const planOfPackage = (
  { names, root, locked, project, given, hasDockerfile }: Found,
  chosen: PackageManager
): Planned => {
  const { scripts = {}, dependencies = {}, devDependencies = {}, main } = project
  const packages = { ...dependencies, ...devDependencies }
  const needsInstall = Object.keys(packages).length > 0 || locked !== root
  const build = given.build ?? (scripts["build"] === undefined ? "" : `${chosen.program} run build`)
  const hasBuild = build.trim() !== ""
  const warnings = [
    ...(needsInstall && !chosen.isLocked
      ? ["There is no lock file: each build may get other versions of what it depends on"]
      : []),
    ...(hasDockerfile ? ["The Dockerfile is not used; `dockerfile` in svc.yaml has it used"] : [])
  ]
  const steps = [
    ...stepOf("install", given.install ?? (needsInstall ? installOf(chosen) : undefined), locked),
    ...stepOf("build", build, root)
  ]
  // Only npm takes away what was for the build without asking its registry again.
  const isPruned =
    chosen.name === "npm" &&
    hasBuild &&
    locked === root &&
    Object.keys(devDependencies).length > 0 &&
    needsInstall
  const prune =
    isPruned && given.install === undefined
      ? stepOf("prune", "npm prune --omit=dev --no-audit --no-fund", root)
      : []
  if (given.output !== undefined) return Result.succeed(ended(given, root, steps, warnings, ""))
  const server = serverFrameworks.find(([name]) => packages[name] !== undefined)
  const files = staticFrameworks.find(([name]) => packages[name] !== undefined)
  const script = scripts["start"]
  const starts = script !== undefined && (server !== undefined || !servesDevelopment.test(script.trim()))
  const start =
    given.start ??
    (starts
      ? startOf(script, scripts, chosen)
      : server !== undefined
        ? `exec ${server[1]}`
        : files === undefined || !hasBuild
          ? startOfFile(names, main)
          : undefined)
  if (start !== undefined) return Result.succeed(ended(given, root, [...steps, ...prune], warnings, start))
  if (files !== undefined && hasBuild) {
    const [, output, fallback] = files
    return Result.succeed(ended({ fallback, ...given, output }, root, steps, warnings, ""))
  }
  if (names.has("index.html") && !hasBuild) return Result.succeed(asItIs(root, warnings))
  return refuse(
    "no_start_command",
    "package.json has no script named start, names no main file that is there, and no known framework"
  )
}

/** One simple command takes the place of the shell, so that SIGTERM reaches it. */
const isSimple = (script: string) => !/[;&|<>()`\n]|^\s*[A-Za-z_]\w*=/.test(script)

const startOf = (
  script: string,
  scripts: Readonly<Record<string, string>>,
  { program }: PackageManager
): string =>
  scripts["prestart"] !== undefined || scripts["poststart"] !== undefined
    ? `exec ${program} run start`
    : isSimple(script)
      ? `exec ${script.trim()}`
      : script

const startOfFile = (names: ReadonlySet<string>, main: string | undefined): string | undefined => {
  const file = main?.replace(/^\.\//, "")
  const found = [...(file === undefined ? [] : [file]), "server.js", "index.js"].find((one) => names.has(one))
  return found === undefined ? undefined : `exec node '${found.replaceAll("'", "'\\''")}'`
}
