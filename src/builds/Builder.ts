/**
 * A build: the source is unpacked in a container of the base image and the steps of its plan run there; what they leave is
 * copied into another container of that image, which never ran and has no variables, and this one becomes the image.
 * Nothing of this machine is mounted, nobody's instructions reach the engine, and the same source by the same plan on the
 * same base is built once for an organization.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { buffer } from "node:stream/consumers"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { pack } from "tar-stream"
import type { BuildPlan, DockerfilePlan, Runtime } from "#schemas/build-plan.ts"
import { AppConfig } from "#src/config.ts"
import { inBackground } from "#src/engine/in-background.ts"
import { Images } from "#src/executions/Images.ts"
import { ContainerEngine, type ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { hostLock } from "#src/infra/host/host-lock.ts"
import { makeTurns } from "#src/infra/host/turns.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { buildUser } from "./archive.ts"
import { BuildContainers } from "./BuildContainers.ts"
import { chooseBase } from "./base-images.ts"
import { BuildFailed, type BuildLost } from "./build-error.ts"
import { DockerfileBuilds } from "./dockerfile/DockerfileBuilds.ts"
import type { BuildPrinter } from "./keep-printed.ts"
import { BuildOptions } from "./options.ts"
import { PackageCaches } from "./PackageCaches.ts"
import { settings } from "./settings.ts"
import { Uploads } from "./Uploads.ts"

export interface BuildRequest {
  readonly orgId: string
  /** Whose packages it uses and leaves, by the uid: its project's or, for the pull request of a fork, the preview's own. */
  readonly packagesOf: string
  /** Of the deployment that it is for. */
  readonly uid: string
  /** Of the uploaded source. */
  readonly digest: string
  readonly plan: BuildPlan
  /** That its steps are given, and nothing of the image has. */
  readonly variables: Redacted.Redacted<Readonly<Record<string, string>>>
}

export class Builder extends Context.Service<
  Builder,
  {
    /**
     * Answers the id of the image, once its turn has come. It leaves no container, also when it is interrupted; when it
     * has answered they go a moment later.
     */
    readonly build: (
      request: BuildRequest,
      printer: BuildPrinter
    ) => Effect.Effect<string, BuildFailed | BuildLost | ContainerError>
  }
>()("svc/builds/Builder") {
  static readonly layer = Layer.effect(
    Builder,
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const images = yield* Images
      const uploads = yield* Uploads
      const caches = yield* PackageCaches
      const containers = yield* BuildContainers
      const dockerfiles = yield* DockerfileBuilds
      const fingerprint = yield* Fingerprint
      const options = yield* BuildOptions
      const { dataDir } = yield* AppConfig
      const { buildImages } = yield* settings
      const turns = makeTurns(1)
      const scope = yield* Effect.scope
      const lock = `svc-build-${sha256(dataDir).slice(0, 16)}`

      const imageFor = Effect.fnUntraced(function* (runtime: Runtime | undefined) {
        const unavailable = (message: string) => new BuildFailed({ errorCode: "build_unavailable", message })
        const chosen = yield* Effect.fromResult(
          Result.mapError(chooseBase(buildImages, runtime), unavailable)
        )
        const { reference } = chosen
        const found = yield* engine.findImage(reference)
        const base = Option.isSome(found)
          ? found.value
          : (yield* Effect.mapError(
              images.pull({ reference, credentials: undefined }, options.pullStallMs),
              ({ message }) => unavailable(message)
            )).id
        yield* images.use(base)
        return base
      })

      /** What the steps run in, and what the app runs on: files are served by a program of Node's. */
      const basesOf = Effect.fnUntraced(function* (plan: BuildPlan) {
        if (plan.kind === "dockerfile") return { build: "", run: "" }
        const build = yield* imageFor(plan.runtime)
        return { build, run: plan.kind === "static" ? yield* imageFor(undefined) : build }
      })

      /** The image of an earlier build of the same. */
      const findBuilt = Effect.fnUntraced(function* (image: string, printer: BuildPrinter) {
        const known = yield* engine.findImage(image)
        if (Option.isNone(known)) return undefined
        yield* printer.say("This source was built before; its image is used")
        yield* images.keep(known.value, image)
        return known.value
      })

      const runSteps = Effect.fnUntraced(function* (
        { orgId, packagesOf, plan }: BuildRequest,
        container: string,
        locks: string,
        printer: BuildPrinter
      ) {
        const usesCache = plan.steps.some(({ name }) => name === "install")
        const cacheRef = { orgId, owner: packagesOf, locks }
        const cached = usesCache ? yield* caches.find(cacheRef) : undefined
        const place = { name: container, folder: cacheFolder }
        if (cached !== undefined) {
          yield* printer.say("What an earlier build has fetched is used")
          // Without it packages are fetched anew.
          yield* Effect.ignore(engine.putFile(place, cached.file))
        }
        yield* containers.run(container, printer)
        if (usesCache && cached?.isExact !== true)
          yield* Effect.ignore(
            caches.put(cacheRef, (file) =>
              engine.take(container, `${cacheFolder}/.`, file, options.cacheBytes)
            )
          )
      })

      const buildNew = Effect.fnUntraced(function* (
        request: BuildRequest,
        bases: Bases,
        image: string,
        printer: BuildPrinter,
        made: Set<string>
      ) {
        const { orgId, uid, plan } = request
        const upload = yield* uploads.find(request)
        if (Option.isNone(upload))
          return yield* new BuildFailed({
            errorCode: "build_unavailable",
            message: "The source is not on this host any more; deploy it again"
          })
        const make = (part: "build" | "image", how: Pick<Made, "command" | "env" | "network" | "workdir">) =>
          Effect.gen(function* () {
            const base = part === "build" ? bases.build : bases.run
            const id = yield* containers.make({ orgId, uid, part, image: base, ...how })
            made.add(id)
            yield* engine.putArchive({ name: id, folder: "/" }, yield* Effect.promise(() => skeletons[part]))
            return id
          })
        const source = uploads.fileOf(request)
        const finish = Effect.fnUntraced(function* (container: string, run?: ReadonlyArray<string>) {
          yield* containers.hasRoom
          const id = yield* engine.commit(container, image, run)
          yield* images.keep(id, image)
          return id
        })
        if (plan.kind === "dockerfile") {
          const { variables } = request
          const { container, command } = yield* dockerfiles.build(
            { orgId, uid, plan, source, variables, made },
            printer
          )
          yield* printer.say("Making the image")
          return yield* finish(container, command)
        }
        const command = yield* commandOf(plan)
        const makeResult = Effect.gen(function* () {
          const result = yield* make("image", {
            command: command.run,
            env: {},
            network: "none",
            workdir: folderIn(plan.kind === "server" ? plan.root : ".")
          })
          if (command.files !== undefined)
            yield* engine.putArchive({ name: result, folder: "/" }, command.files)
          return result
        })
        const output = plan.kind === "static" ? folderIn(plan.output) : appFolder
        if (plan.steps.length === 0 && output === appFolder) {
          const result = yield* makeResult
          yield* engine.putFile({ name: result, folder: appFolder }, source)
          return yield* finish(result)
        }
        const makeBuild = Effect.gen(function* () {
          const build = yield* make("build", {
            command: ["/bin/sh", "-euc", scriptOf(plan)],
            env: { ...buildVariables, ...Redacted.value(request.variables) },
            network: "isolated",
            workdir: appFolder
          })
          yield* engine.putFile({ name: build, folder: appFolder }, source)
          return build
        })
        const [result, build] = yield* Effect.all([makeResult, makeBuild], { concurrency: 2 })
        yield* runSteps(request, build, upload.value.locks, printer)
        yield* printer.say("Making the image")
        yield* Effect.catchIf(
          engine.copy(
            { name: build, folder: output },
            { name: result, folder: appFolder },
            options.resultBytes
          ),
          ({ reason }) => reason === "NotFound" || reason === "Failed",
          ({ reason, message }) =>
            new BuildFailed({
              errorCode: "build_failed",
              message:
                reason === "NotFound" && plan.kind === "static"
                  ? `The build left no folder ${plan.output}`
                  : `What the build left cannot be taken: ${message}`
            })
        )
        return yield* finish(result)
      })

      return Builder.of({
        build: Effect.fn("Builder.build")(function* (request, printer) {
          const { orgId, uid } = request
          const bases = yield* basesOf(request.plan)
          const names = Object.keys(Redacted.value(request.variables)).sort()
          const image = imageNameOf(request, bases, names.length === 0 ? "" : fingerprint(valuesOf(request)))
          if (names.length > 0) yield* printer.say(`Variables of the build: ${names.join(", ")}`)
          const before = yield* findBuilt(image, printer)
          if (before !== undefined) return before
          const made = new Set<string>()
          const inTurn = Effect.gen(function* () {
            yield* hostLock(lock)
            const meanwhile = yield* findBuilt(image, printer)
            if (meanwhile !== undefined) return meanwhile
            yield* containers.hasRoom
            // What a process left that was killed.
            yield* containers.clear(uid)
            return yield* Effect.timeoutOrElse(buildNew(request, bases, image, printer, made), {
              duration: Duration.millis(options.totalMs),
              orElse: () =>
                new BuildFailed({
                  errorCode: "build_timed_out",
                  message: `The build took longer than ${options.totalMs / 1_000} s`
                })
            })
          })
          const clear = Effect.ignore(Effect.suspend(() => containers.clear(uid, made)))
          return yield* inTurn.pipe(
            // Who waits for the image need not wait for that.
            Effect.onExit((exit) =>
              Exit.isSuccess(exit) ? Effect.asVoid(Effect.forkIn(inBackground(clear), scope)) : clear
            ),
            Effect.scoped,
            turns.take({ owner: orgId, first: false })
          )
        })
      })
    })
  )
}

/** Ids of images; empty: those that a Dockerfile names. */
interface Bases {
  readonly build: string
  readonly run: string
}

type Made = Parameters<BuildContainers["Service"]["make"]>[0]

const appFolder = "/app"
const cacheFolder = "/tmp/cache"
const serverFile = "srv/svc/serve-static.mjs"
const folderIn = (folder: string) => (folder === "." ? appFolder : `${appFolder}/${folder}`)
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

/** Of the steps alone: none of it is in the image. */
const buildVariables = {
  HOME: "/tmp",
  CI: "1",
  // Package managers and build tools load megabytes of code before they do anything.
  NODE_COMPILE_CACHE: `${cacheFolder}/node`,
  NEXT_TELEMETRY_DISABLED: "1",
  ASTRO_TELEMETRY_DISABLED: "1",
  npm_config_cache: `${cacheFolder}/npm`,
  // pnpm and yarn keep theirs where these say (XDG Base Directory Specification).
  XDG_DATA_HOME: `${cacheFolder}/data`,
  XDG_CACHE_HOME: `${cacheFolder}/cache`,
  npm_config_prefer_offline: "true",
  npm_config_update_notifier: "false",
  YARN_GLOBAL_FOLDER: `${cacheFolder}/yarn-global`,
  YARN_ENABLE_TELEMETRY: "0",
  YARN_NODE_LINKER: "node-modules",
  PIP_CACHE_DIR: `${cacheFolder}/pip`,
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  UV_CACHE_DIR: `${cacheFolder}/uv`,
  // The image says which Python it is.
  UV_PYTHON_DOWNLOADS: "never",
  POETRY_CACHE_DIR: `${cacheFolder}/poetry`,
  POETRY_VIRTUALENVS_IN_PROJECT: "true",
  GOCACHE: `${cacheFolder}/go-build`,
  GOMODCACHE: `${cacheFolder}/go-mod`,
  GOFLAGS: "-modcacherw",
  GOTOOLCHAIN: "local",
  CGO_ENABLED: "0"
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
const scriptOf = (plan: Exclude<BuildPlan, DockerfilePlan>) =>
  [
    ...(plan.runtime?.name === "python" ? [pathOf(plan)] : []),
    ...plan.steps.map(
      ({ command, folder }) =>
        `cd ${quoted(folderIn(folder))}\nprintf '$ %s\\n' ${quoted(command)}\n${command}`
    )
  ].join("\n")

/** Has programs found that were installed for the app. */
const pathOf = (plan: Exclude<BuildPlan, DockerfilePlan>): string => {
  const places = plan.kind === "server" ? [folderIn(plan.root), appFolder] : [appFolder]
  const programs = plan.runtime?.name === "python" ? ".venv/bin" : "node_modules/.bin"
  const folders = [...new Set(places)].map((folder) => `${folder}/${programs}`)
  return `export PATH=${quoted(folders.join(":"))}:"$PATH"`
}

/** Of its variables, in one order. */
const valuesOf = ({ variables }: BuildRequest): string =>
  JSON.stringify(Object.entries(Redacted.value(variables)).sort(([a], [b]) => (a < b ? -1 : 1)))

/** Organizations share nothing: a name holds whose it is. `values`: a keyed digest of the variables. */
const imageNameOf = (
  { orgId, digest, plan }: BuildRequest,
  { build, run }: Bases,
  values: string
): string => {
  const made = sha256(JSON.stringify([2, build, run, digest, plan, values]))
  return `localhost/svc-build/${orgId}:${made.slice(0, 40)}`
}

const archiveOf = (entries: ReadonlyArray<{ readonly name: string; readonly content?: Buffer }>) => {
  const writer = pack()
  for (const { name, content } of entries) {
    const owner = name.startsWith("srv") ? 0 : buildUser
    const header = { name, uid: owner, gid: owner, mtime: new Date(0) }
    if (content === undefined) writer.entry({ ...header, type: "directory", mode: 0o755 })
    else writer.entry({ ...header, mode: 0o644 }, content)
  }
  writer.finalize()
  return buffer(writer)
}

/** Folders that belong to the user of builds. */
const skeletons = {
  build: archiveOf([{ name: "app/" }, { name: `${cacheFolder.slice(1)}/` }]),
  image: archiveOf([{ name: "app/" }])
}

/** What programs of each runtime expect, unless the environment says otherwise. */
const startVariables = {
  node: ` NODE_ENV="\${NODE_ENV:-production}"`,
  python: ` PYTHONUNBUFFERED="\${PYTHONUNBUFFERED:-1}"`,
  go: ""
}

/** What the image runs, and files that are for that. */
const commandOf = Effect.fnUntraced(function* (plan: Exclude<BuildPlan, DockerfilePlan>) {
  if (plan.kind === "server") {
    const variables = startVariables[plan.runtime?.name ?? "node"]
    return { run: ["/bin/sh", "-c", `${pathOf(plan)}${variables}\n${plan.start}`], files: undefined }
  }
  const content = yield* Effect.promise(() => fs.readFile(new URL("serve-static.mjs", import.meta.url)))
  const files = yield* Effect.promise(() =>
    archiveOf([{ name: "srv/" }, { name: "srv/svc/" }, { name: serverFile, content }])
  )
  return {
    run: ["node", `/${serverFile}`, appFolder, ...(plan.fallback ? ["fallback"] : [])],
    files
  }
})
