/**
 * Building by a Dockerfile, whose instructions never reach the engine's own builder: each stage is a container in which
 * its commands are run one after the other, as the user that it says and without capabilities, and copies are archives that
 * are made here, of the source or of another stage.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { buffer } from "node:stream/consumers"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { pack } from "tar-stream"
import type { DockerfilePlan } from "#schemas/build-plan.ts"
import { AppConfig } from "#src/config.ts"
import { Images } from "#src/executions/Images.ts"
import { parseImage } from "#src/executions/image.ts"
import { ContainerEngine, type ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { BuildContainers } from "../BuildContainers.ts"
import { BuildFailed, type BuildLost } from "../build-error.ts"
import type { BuildPrinter } from "../keep-printed.ts"
import { BuildOptions } from "../options.ts"
import { settings } from "../settings.ts"
import { copyArchive, NotCopied } from "./copy.ts"
import { TooLong } from "./expand.ts"
import { type Operation, resolve } from "./resolve.ts"

interface DockerfileRequest {
  readonly orgId: string
  readonly uid: string
  readonly plan: DockerfilePlan
  /** Archive of the source. */
  readonly source: string
  /** Values of build arguments that its stages declare. */
  readonly variables: Redacted.Redacted<Readonly<Record<string, string>>>
  /** Is told of each container that is made. */
  readonly made: Set<string>
}

export class DockerfileBuilds extends Context.Service<
  DockerfileBuilds,
  {
    /** Answers the container to make the image of, and the command of it. */
    readonly build: (
      request: DockerfileRequest,
      printer: BuildPrinter
    ) => Effect.Effect<
      { readonly container: string; readonly command: ReadonlyArray<string> },
      BuildFailed | BuildLost | ContainerError
    >
  }
>()("svc/builds/DockerfileBuilds") {
  static readonly layer = Layer.effect(
    DockerfileBuilds,
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const images = yield* Images
      const containers = yield* BuildContainers
      const options = yield* BuildOptions
      const { buildImages } = yield* settings
      const { dataDir } = yield* AppConfig
      const drafts = path.join(dataDir, "uploads")

      const failed = (message: string) => new BuildFailed({ errorCode: "build_failed", message })
      const at = (line: number, message: string) => failed(`Dockerfile, line ${line}: ${message}`)

      /** Ends once the disk is full. */
      const fullDisk = Effect.forever(Effect.andThen(Effect.sleep(options.measureMs), containers.hasRoom))

      /**
       * Fetched anew, as who may have no credentials: what is on this host may be others'. The operator's own image is
       * everybody's.
       */
      const imageOf = Effect.fnUntraced(function* (name: string) {
        if (buildImages.some(({ reference }) => reference === name)) {
          const found = yield* engine.findImage(name)
          if (Option.isSome(found)) return found.value
        }
        const reference = parseImage(name)
        if (reference === undefined || reference.registry.split(":")[0] === "localhost")
          return yield* failed(`The image ${name} cannot be fetched: it names no registry`)
        yield* containers.hasRoom
        const { id } = yield* images
          .pullNamed({ reference: reference.canonical, credentials: undefined }, options.pullStallMs)
          .pipe(
            Effect.mapError(({ message }) => failed(`The image ${name} cannot be fetched: ${message}`)),
            Effect.raceFirst(fullDisk)
          )
        const { volumes } = yield* engine.imageDefaults(id)
        if (volumes.length > 0)
          return yield* failed(
            `The image ${name} has volumes (${volumes.join(", ").slice(0, 200)}): it is not built on`
          )
        return id
      })

      /** A file that goes with the scope. */
      const draft = Effect.acquireRelease(
        Effect.promise(async () => {
          await fs.mkdir(drafts, { recursive: true, mode: 0o700 })
          return path.join(drafts, `${randomUUID()}.part`)
        }),
        (file) => Effect.promise(() => fs.rm(file, { force: true }))
      )

      const build = Effect.fnUntraced(function* (request: DockerfileRequest, printer: BuildPrinter) {
        const { orgId, uid, plan, source, made } = request
        const stages = new Map<number, string>()
        let count = 0
        /** Bytes that stages which are done take. */
        let used = 0

        const makeContainer = Effect.fnUntraced(function* (
          image: string,
          how: Pick<
            Parameters<BuildContainers["Service"]["make"]>[0],
            "command" | "env" | "network" | "user" | "workdir"
          >
        ) {
          const id = yield* containers.make({ orgId, uid, part: `stage${count++}`, image, ...how })
          made.add(id)
          return id
        })

        const asRoot = (command: ReadonlyArray<string>) => ({ command, env: {}, user: "0", workdir: "/" })
        const quiet: BuildPrinter = { print: () => Effect.void, say: () => Effect.void }

        /** Numbers of an owner, who may be named as the container names users and groups. */
        const ownerOf = Effect.fnUntraced(function* (
          container: string | undefined,
          line: number,
          owner: string | null
        ) {
          const [user = "", group = user] = (owner ?? "0:0").split(":")
          const numberOf = Effect.fnUntraced(function* (name: string, file: string, column: number) {
            if (/^\d{1,9}$/.test(name)) return Number(name)
            if (container === undefined) return yield* at(line, "--chown takes numbers where nothing is run")
            let text = ""
            const print: BuildPrinter["print"] = (pieces) =>
              Effect.sync(() => {
                text = (text + Buffer.concat(pieces.map(({ content }) => content)).toString()).slice(
                  0,
                  1_000_000
                )
              })
            yield* containers.exec(container, asRoot(["cat", file]), { ...quiet, print })
            const row = text.split("\n").find((one) => one.startsWith(`${name}:`))
            const found = Number(row?.split(":")[column])
            return Number.isInteger(found) ? found : yield* at(line, `there is no ${name} in ${file}`)
          })
          return {
            uid: yield* numberOf(user, "/etc/passwd", 2),
            gid: yield* numberOf(
              group,
              owner?.includes(":") === true || owner === null ? "/etc/group" : "/etc/passwd",
              owner?.includes(":") === true || owner === null ? 2 : 3
            )
          }
        })

        const copyFrom = Effect.fnUntraced(function* (
          operation: Extract<Operation, { readonly do: "copy" }>,
          container: string,
          running: boolean
        ) {
          const { from, line, sources } = operation
          const owner = yield* ownerOf(running ? container : undefined, line, operation.owner)
          const target = yield* draft
          const copy = (
            file: string,
            nameOf: (name: string) => string | undefined,
            some: ReadonlyArray<string>,
            ignored: string
          ) =>
            Effect.tryPromise({
              try: (signal) =>
                copyArchive(file, target, nameOf, { ...operation, ...owner, sources: some, ignored }, signal),
              catch: (error) =>
                at(line, error instanceof NotCopied ? error.message : "the files cannot be copied")
            })
          const put = Effect.suspend(() => engine.putFile({ name: container, folder: "/" }, target))
          if (from === null) {
            const root = plan.root === "." ? "" : `${plan.root}/`
            const nameOf = (name: string) => (name.startsWith(root) ? name.slice(root.length) : undefined)
            if ((yield* copy(source, nameOf, sources, plan.ignored)) === 0)
              return yield* at(line, `there is no ${sources.join(" ")} in the source`)
            return yield* put
          }
          const origin = "stage" in from ? yield* stageOf(from.stage) : yield* originOf(from.image)
          for (const path of sources) {
            if (/[*?]/.test(path)) return yield* at(line, "patterns are for files of the source")
            const taken = yield* draft
            const isTaken = yield* engine.take(origin, `/${path}`, taken, options.resultBytes).pipe(
              Effect.as(true),
              Effect.catchIf(
                ({ reason }) => reason === "NotFound" || reason === "Failed",
                () => Effect.succeed(false)
              )
            )
            if (!isTaken) return yield* at(line, `/${path} cannot be copied from the other stage`)
            const above = path.includes("/") ? `${path.slice(0, path.lastIndexOf("/"))}/` : ""
            yield* copy(taken, (name) => (name === "" ? undefined : `${above}${name}`), [path], "")
            yield* put
          }
        })

        /** A container of an image whose files are taken. */
        const originOf = Effect.fnUntraced(function* (name: string) {
          const image = yield* imageOf(name)
          return yield* makeContainer(image, {
            command: keepUp,
            env: {},
            network: "none",
            user: "0",
            workdir: "/"
          })
        })

        /** The container of a stage, once all of it is done. */
        const stageOf: (index: number) => Effect.Effect<string, BuildFailed | BuildLost | ContainerError> =
          Effect.fnUntraced(function* (index: number) {
            const done = stages.get(index)
            return done ?? (yield* Effect.map(makeStage(index), ({ container }) => container))
          })

        const makeStage = Effect.fnUntraced(function* (index: number) {
          const stage = plan.stages[index]
          if (stage === undefined) return yield* failed("The Dockerfile has no such stage")
          const image = yield* imageOf(stage.from)
          const defaults = yield* engine.imageDefaults(image)
          const { operations, result } = yield* Effect.try({
            try: () => resolve(stage, defaults, Redacted.value(request.variables)),
            catch: (error) =>
              failed(error instanceof TooLong ? error.message : "The Dockerfile cannot be read")
          })
          // One after the other: of a build, one container runs at a time.
          for (const one of operations)
            if (one.do === "copy" && one.from !== null && "stage" in one.from) yield* stageOf(one.from.stage)
          const runs = operations.some((one) => one.do === "run")
          const container = yield* makeContainer(image, {
            command: keepUp,
            env: result.env,
            network: runs ? "isolated" : "none",
            user: result.user === "" ? "0" : result.user,
            workdir: runs || result.workdir === "" ? "/" : result.workdir
          })
          stages.set(index, container)
          if (runs) {
            // Engines keep the root folder from being written to, which root may pass over by a capability only.
            yield* engine.putArchive(
              { name: container, folder: "/" },
              yield* Effect.promise(() => writableRoot)
            )
            yield* engine.run(container, { background: true })
          }
          for (const operation of operations) {
            if (operation.do === "copy") {
              yield* printer.say(`${operation.line}: COPY ${operation.sources.join(" ")} ${operation.target}`)
              yield* Effect.scoped(copyFrom(operation, container, runs))
            } else if (operation.do === "folder") {
              if (!runs) continue
              const code = yield* containers.exec(container, asRoot(["mkdir", "-p", operation.path]), printer)
              if (code !== 0)
                return yield* at(operation.line, `${operation.path} cannot be made (exit code ${code})`)
            } else {
              const { command, line, unset } = operation
              yield* printer.say(`${line}: RUN ${command.at(-1)?.slice(0, 500) ?? ""}`)
              const cleared =
                unset.length === 0
                  ? command
                  : ["/bin/sh", "-c", `unset ${unset.join(" ")}; exec "$@"`, "sh", ...command]
              const code = yield* containers.exec(
                container,
                { ...operation, command: cleared, user: operation.user === "" ? "0" : operation.user },
                printer
              )
              if (code !== 0) return yield* at(line, `RUN ended with the exit code ${code}`)
            }
          }
          // What it left running would share the machine with the stages after it.
          yield* engine.signal(container, "SIGKILL")
          used += yield* engine.written(container)
          if (used > options.diskMb * 1024 * 1024)
            return yield* failed(`The stages of the build wrote more than ${options.diskMb} MiB`)
          return { container, result, runs }
        })

        const { container, result, runs } = yield* makeStage(plan.stages.length - 1)
        const command = [...result.entrypoint, ...result.cmd]
        if (command.length === 0)
          return yield* failed("Neither the Dockerfile nor its image says what to run")
        // The image starts where the Dockerfile ends, whatever ran in the container.
        const start =
          !runs || result.workdir === "/"
            ? command
            : ["/bin/sh", "-c", 'cd "$0" && exec "$@"', result.workdir, ...command]
        return { container, command: start }
      })

      return DockerfileBuilds.of({ build })
    })
  )
}

const writableRoot = (() => {
  const writer = pack()
  writer.entry({ name: "./", type: "directory", mode: 0o755, uid: 0, gid: 0, mtime: new Date(0) })
  writer.finalize()
  return buffer(writer)
})()

/** What the container of a stage runs while its commands are run beside it. */
const keepUp = ["/bin/sh", "-c", "while :; do sleep 3600; done"]
