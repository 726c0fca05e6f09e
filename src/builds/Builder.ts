/**
 * A build: the source is unpacked in a container of the base image and the steps of its plan run there; what they leave is
 * copied into another container of that image, which never ran and has no variables, and this one becomes the image.
 * Nothing of this machine is mounted, nobody's instructions reach the engine, and the same source by the same plan on the
 * same base is built once for an organization.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { buffer } from "node:stream/consumers"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { pack } from "tar-stream"
import type { BuildPlan } from "#schemas/build-plan.ts"
import { Images } from "#src/executions/Images.ts"
import { ContainerEngine, type ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { buildUser } from "./archive.ts"
import { type BuildLost, type BuildPrinter, keepPrinted } from "./keep-printed.ts"
import { BuildOptions } from "./options.ts"
import { settings } from "./settings.ts"
import { Uploads } from "./Uploads.ts"

export interface BuildRequest {
  readonly orgId: string
  /** Of the deployment that it is for. */
  readonly uid: string
  /** Of the uploaded source. */
  readonly digest: string
  readonly plan: BuildPlan
}

export class BuildFailed extends Schema.TaggedError<BuildFailed>()("BuildFailed", {
  errorCode: Schema.Literals(["build_failed", "build_timed_out", "build_unavailable"]),
  message: Schema.String
}) {}

export class Builder extends Context.Service<
  Builder,
  {
    /** Answers the id of the image. It leaves no container, also when it is interrupted. */
    readonly build: (
      request: BuildRequest,
      printer: BuildPrinter
    ) => Effect.Effect<string, BuildFailed | BuildLost | ContainerError>
    /** Removes what builds left that were killed. */
    readonly clear: (uid: string) => Effect.Effect<void, ContainerError>
    /** Deployments that there are containers of, with their organizations. */
    readonly remains: Effect.Effect<
      ReadonlyArray<{ readonly orgId: string; readonly uid: string }>,
      ContainerError
    >
  }
>()("svc/builds/Builder") {
  static readonly layer = Layer.effect(
    Builder,
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const images = yield* Images
      const uploads = yield* Uploads
      const installation = yield* Installation
      const options = yield* BuildOptions
      const { buildImage } = yield* settings

      const namesOf = (uid: string) => {
        const name = installation.nameOf(uid)
        return { build: `${name}-build`, result: `${name}-image` }
      }

      const clear = Effect.fnUntraced(function* (uid: string) {
        const { build, result } = namesOf(uid)
        yield* engine.remove(build)
        yield* engine.remove(result)
      })

      const baseImage = Effect.gen(function* () {
        if (buildImage === undefined)
          return yield* new BuildFailed({
            errorCode: "build_unavailable",
            message: "Nothing is built on this host: SVC_BUILD_IMAGE is not set"
          })
        const found = yield* engine.findImage(buildImage)
        const base = Option.isSome(found)
          ? found.value
          : (yield* Effect.mapError(
              images.pull({ reference: buildImage, credentials: undefined }, options.pullStallMs),
              ({ message }) => new BuildFailed({ errorCode: "build_unavailable", message })
            )).id
        yield* images.use(base)
        return base
      })

      /** A container of the base image with an empty folder for the app. */
      const make = Effect.fnUntraced(function* (
        { orgId }: BuildRequest,
        name: string,
        image: string,
        how: {
          readonly command: ReadonlyArray<string>
          readonly env: Readonly<Record<string, string>>
          readonly network: "isolated" | "none"
        }
      ) {
        yield* engine.create({
          name,
          labels: { ...installation.labels, "svc.organization": orgId },
          image,
          command: how.command,
          env: Redacted.make(how.env),
          cpus: options.cpus,
          // Below everything else: databases and apps go first.
          cpuShares: 64,
          memoryMb: options.memoryMb,
          runtime: undefined,
          network: { kind: how.network },
          user: `${buildUser}:${buildUser}`,
          workdir: appFolder,
          oomScore: 800
        })
        yield* engine.putArchive({ name, folder: "/" }, yield* Effect.promise(() => skeleton))
      })

      const runSteps = Effect.fnUntraced(function* (name: string, printer: BuildPrinter) {
        yield* engine.run(name, {})
        let printedAt = yield* Clock.currentTimeMillis
        const silence = Effect.gen(function* () {
          for (;;) {
            yield* Effect.sleep("500 millis")
            if ((yield* Clock.currentTimeMillis) - printedAt > options.silentMs)
              return yield* new BuildFailed({
                errorCode: "build_timed_out",
                message: `The build printed nothing for ${options.silentMs / 1_000} s`
              })
          }
        })
        const noted = {
          ...printer,
          print: (pieces: Parameters<BuildPrinter["print"]>[0]) =>
            Effect.andThen(
              Effect.map(Clock.currentTimeMillis, (now) => {
                printedAt = now
              }),
              printer.print(pieces)
            )
        }
        const ended = yield* Effect.raceFirst(keepPrinted(engine, name, noted, options.logBytes), silence)
        if (ended.outOfMemory)
          return yield* new BuildFailed({
            errorCode: "build_failed",
            message: `The build needed more than ${options.memoryMb} MiB of memory`
          })
        if (ended.exitCode !== 0)
          return yield* new BuildFailed({
            errorCode: "build_failed",
            message: `The build ended with the exit code ${ended.exitCode}`
          })
      })

      const buildNew = Effect.fnUntraced(function* (
        request: BuildRequest,
        base: string,
        image: string,
        printer: BuildPrinter
      ) {
        const { uid, plan } = request
        const { build, result } = namesOf(uid)
        if (Option.isNone(yield* uploads.find(request)))
          return yield* new BuildFailed({
            errorCode: "build_unavailable",
            message: "The uploaded source is not on this host any more; deploy it again"
          })
        const source = uploads.fileOf(request)
        const command = yield* commandOf(plan)
        yield* make(request, result, base, { command: command.run, env: {}, network: "none" })
        if (command.files !== undefined)
          yield* engine.putArchive({ name: result, folder: "/" }, command.files)
        const output = plan.kind === "static" && plan.output !== "." ? `/${plan.output}` : ""
        const target = { name: result, folder: appFolder }
        if (plan.steps.length === 0 && output === "") yield* engine.putFile(target, source)
        else {
          yield* make(request, build, base, {
            command: ["/bin/sh", "-euc", scriptOf(plan)],
            env: buildVariables,
            network: "isolated"
          })
          yield* engine.putFile({ name: build, folder: appFolder }, source)
          yield* runSteps(build, printer)
          yield* printer.say("Making the image")
          yield* Effect.catchIf(
            engine.copy({ name: build, folder: `${appFolder}${output}` }, target, options.resultBytes),
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
        }
        const id = yield* engine.commit(result, image)
        yield* images.keep(id, image)
        return id
      })

      return Builder.of({
        build: Effect.fn("Builder.build")(function* (request, printer) {
          const base = yield* baseImage
          const image = imageNameOf(request, base)
          const known = yield* engine.findImage(image)
          if (Option.isSome(known)) {
            yield* printer.say("This source was built before; its image is used")
            yield* images.keep(known.value, image)
            return known.value
          }
          const { uid } = request
          // What a process left that was killed.
          yield* clear(uid)
          return yield* buildNew(request, base, image, printer).pipe(
            Effect.timeoutOrElse({
              duration: Duration.millis(options.totalMs),
              orElse: () =>
                new BuildFailed({
                  errorCode: "build_timed_out",
                  message: `The build took longer than ${options.totalMs / 1_000} s`
                })
            }),
            Effect.ensuring(Effect.ignore(clear(uid)))
          )
        }),
        clear,
        remains: Effect.map(engine.list(installation.label), (all) =>
          all.flatMap(({ name, labels }) => {
            const uid = ownName.exec(name)?.[1]
            const orgId = labels["svc.organization"]
            return uid === undefined || orgId === undefined ? [] : [{ orgId, uid }]
          })
        )
      })
    })
  )
}

const ownName = /^svc-([0-9a-f-]{36})-(?:build|image)$/
const appFolder = "/app"
const serverFile = "srv/svc/serve-static.mjs"

/** Of the steps alone: none of it is in the image. */
const buildVariables = {
  HOME: "/tmp",
  CI: "1",
  npm_config_cache: "/tmp/npm",
  npm_config_update_notifier: "false",
  YARN_NODE_LINKER: "node-modules"
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
const scriptOf = ({ steps }: BuildPlan) =>
  steps.map(({ command }) => `printf '$ %s\\n' ${quoted(command)}\n${command}`).join("\n")

/** Organizations share nothing: a name holds whose it is. */
const imageNameOf = ({ orgId, digest, plan }: BuildRequest, base: string): string => {
  const key = createHash("sha256")
    .update(JSON.stringify([1, base, digest, plan]))
    .digest("hex")
  return `localhost/svc-build/${orgId}:${key.slice(0, 40)}`
}

const archiveOf = (entries: ReadonlyArray<{ readonly name: string; readonly content?: Buffer }>) => {
  const writer = pack()
  for (const { name, content } of entries) {
    const owner = name.startsWith("app") ? buildUser : 0
    const header = { name, uid: owner, gid: owner, mtime: new Date(0) }
    if (content === undefined) writer.entry({ ...header, type: "directory", mode: 0o755 })
    else writer.entry({ ...header, mode: 0o644 }, content)
  }
  writer.finalize()
  return buffer(writer)
}

const skeleton = archiveOf([{ name: "app/" }])

/** What the image runs, and files that are for that. */
const commandOf = Effect.fnUntraced(function* (plan: BuildPlan) {
  if (plan.kind === "server") {
    const prepared = `export PATH="${appFolder}/node_modules/.bin:$PATH" NODE_ENV="\${NODE_ENV:-production}"`
    return { run: ["/bin/sh", "-c", `${prepared}\n${plan.start}`], files: undefined }
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
