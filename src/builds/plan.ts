/**
 * From what is in a folder to how it is built and run, without any instructions. Pure: whoever calls it reads the names
 * of the files at the top and the text of package.json, which both the command line and the server do.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { BuildPlan } from "#schemas/build-plan.ts"

export interface SourceFacts {
  /** Names of files and folders at the top. */
  readonly names: ReadonlySet<string>
  /** Text of package.json; undefined: there is no such file. */
  readonly packageJson: string | undefined
}

export class PlanRefused extends Schema.TaggedError<PlanRefused>()("PlanRefused", {
  code: Schema.Literals([
    "no_build_plan",
    "bad_package_json",
    "several_lockfiles",
    "package_manager_unsupported",
    "no_start_command",
    "dockerfile_unsupported"
  ]),
  message: Schema.String
}) {}

type Planned = Result.Result<BuildPlan, PlanRefused>

const Package = Schema.fromJsonString(
  Schema.Struct({
    main: Schema.optionalKey(Schema.String),
    packageManager: Schema.optionalKey(Schema.String),
    scripts: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
    dependencies: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
    devDependencies: Schema.optionalKey(Schema.Record(Schema.String, Schema.String))
  })
)
type Package = typeof Package.Type
const decode = Schema.decodeUnknownResult(Package)

const managers = ["npm", "pnpm", "yarn"] as const
type Manager = (typeof managers)[number]

const lockfiles: ReadonlyArray<readonly [file: string, manager: string]> = [
  ["package-lock.json", "npm"],
  ["npm-shrinkwrap.json", "npm"],
  ["pnpm-lock.yaml", "pnpm"],
  ["yarn.lock", "yarn"],
  ["bun.lock", "bun"],
  ["bun.lockb", "bun"]
]

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

export const planOf = ({ names, packageJson }: SourceFacts): Planned => {
  const hasDockerfile = names.has("Dockerfile") || names.has("Containerfile")
  if (packageJson === undefined) {
    if (names.has("index.html"))
      return Result.succeed({ kind: "static", steps: [], warnings: [], output: ".", fallback: false })
    return hasDockerfile
      ? refuse(
          "dockerfile_unsupported",
          "Dockerfiles are not built here; build the image elsewhere and deploy it with --image"
        )
      : refuse("no_build_plan", "There is neither a package.json nor an index.html in this folder")
  }
  const decoded = decode(packageJson)
  if (Result.isFailure(decoded))
    return refuse("bad_package_json", "package.json is not the JSON that npm describes")
  const project = decoded.success
  const manager = managerOf(names, project)
  if (Result.isFailure(manager)) return Result.fail(manager.failure)
  return planOfPackage(names, project, manager.success, hasDockerfile)
}

interface Chosen {
  readonly manager: Manager
  /** What calls it: npm comes with Node, the others are fetched in the version that package.json names. */
  readonly program: string
  readonly isLocked: boolean
  readonly isClassicYarn: boolean
}

const managerOf = (
  names: ReadonlySet<string>,
  { packageManager }: Package
): Result.Result<Chosen, PlanRefused> => {
  const locked = [...new Set(lockfiles.flatMap(([file, manager]) => (names.has(file) ? [manager] : [])))]
  if (locked.length > 1)
    return Result.fail(
      new PlanRefused({
        code: "several_lockfiles",
        message: `There are lock files of ${locked.join(" and ")}; keep one of them`
      })
    )
  const [named, version] = packageManager?.split("+", 1)[0]?.split("@") ?? []
  const wanted = locked[0] ?? named ?? "npm"
  const manager = managers.find((one) => one === wanted)
  const exact = named === manager ? version : undefined
  if (manager === undefined || (exact !== undefined && !/^\d+(\.\d+){0,2}(-[\w.]+)?$/.test(exact)))
    return Result.fail(
      new PlanRefused({
        code: "package_manager_unsupported",
        message: `The package manager ${wanted}${exact === undefined ? "" : `@${exact}`} is none of ${managers.join(", ")}`
      })
    )
  const isClassicYarn = manager === "yarn" && (exact === undefined || exact.startsWith("1"))
  const program =
    manager === "npm"
      ? "npm"
      : manager === "pnpm"
        ? `npx --yes pnpm@${exact ?? "10"}`
        : isClassicYarn
          ? `npx --yes yarn@${exact ?? "1"}`
          : `npx --yes --package=@yarnpkg/cli-dist@${exact} yarn`
  return Result.succeed({ manager, program, isLocked: locked.length > 0, isClassicYarn })
}

const installOf = ({ manager, program, isLocked, isClassicYarn }: Chosen): string =>
  manager === "npm"
    ? `npm ${isLocked ? "ci" : "install"} --no-audit --no-fund`
    : `${program} install${isLocked ? (manager === "yarn" && !isClassicYarn ? " --immutable" : " --frozen-lockfile") : ""}`

const planOfPackage = (
  names: ReadonlySet<string>,
  { scripts = {}, dependencies = {}, devDependencies = {}, main }: Package,
  chosen: Chosen,
  hasDockerfile: boolean
): Planned => {
  const packages = { ...dependencies, ...devDependencies }
  const needsInstall = Object.keys(packages).length > 0
  const hasBuild = scripts["build"] !== undefined
  const warnings = [
    ...(needsInstall && !chosen.isLocked
      ? ["There is no lock file: each build may get other versions of what it depends on"]
      : []),
    ...(hasDockerfile ? ["The Dockerfile is not used"] : [])
  ]
  const steps = [
    ...(needsInstall ? [{ name: "install" as const, command: installOf(chosen) }] : []),
    ...(hasBuild ? [{ name: "build" as const, command: `${chosen.program} run build` }] : [])
  ]
  const server = serverFrameworks.find(([name]) => packages[name] !== undefined)
  const files = staticFrameworks.find(([name]) => packages[name] !== undefined)
  const script = scripts["start"]
  const starts = script !== undefined && (server !== undefined || !servesDevelopment.test(script.trim()))
  const start = starts
    ? startOf(script, scripts, chosen)
    : server !== undefined
      ? `exec ${server[1]}`
      : files === undefined || !hasBuild
        ? startOfFile(names, main)
        : undefined
  if (start !== undefined) {
    // Only npm takes away what was for the build without asking its registry again.
    const prune =
      chosen.manager === "npm" && hasBuild && Object.keys(devDependencies).length > 0
        ? [{ name: "prune" as const, command: "npm prune --omit=dev --no-audit --no-fund" }]
        : []
    return Result.succeed({ kind: "server", steps: [...steps, ...prune], warnings, start })
  }
  if (files !== undefined && hasBuild) {
    const [, output, fallback] = files
    return Result.succeed({ kind: "static", steps, warnings, output, fallback })
  }
  if (names.has("index.html") && !hasBuild)
    return Result.succeed({ kind: "static", steps: [], warnings, output: ".", fallback: false })
  return refuse(
    "no_start_command",
    "package.json has no script named start, names no main file that is there, and no known framework"
  )
}

/** One simple command takes the place of the shell, so that SIGTERM reaches it. */
const isSimple = (script: string) => !/[;&|<>()`\n]|^\s*[A-Za-z_]\w*=/.test(script)

const startOf = (script: string, scripts: Readonly<Record<string, string>>, { program }: Chosen): string =>
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
