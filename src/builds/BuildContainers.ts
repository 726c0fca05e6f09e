/**
 * Containers that builds run in: as the user 1000, without capabilities, below everything else of this machine, and bound
 * in memory, processors, processes, disk, time, what is printed, and how long nothing is. A name says whose deployment a
 * container is for; what is done to one is done by its id, so that of two processes that build the same nobody takes the
 * other's for its own.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { ContainerEngine, type ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import type { Program } from "#src/infra/containers/exec.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { buildUser } from "./archive.ts"
import { BuildFailed, BuildLost } from "./build-error.ts"
import { type BuildPrinter, keepPrinted } from "./keep-printed.ts"
import { BuildOptions } from "./options.ts"
import { settings } from "./settings.ts"

export interface BuildContainer {
  readonly orgId: string
  /** Of the deployment. */
  readonly uid: string
  readonly part: "build" | "image" | `stage${number}`
  readonly image: string
  readonly command: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly network: "isolated" | "none"
  readonly workdir: string
  /** Left out: the user of builds. */
  readonly user?: string
}

export class BuildContainers extends Context.Service<
  BuildContainers,
  {
    /** Answers its id. Somebody else has made it: `BuildLost`. */
    readonly make: (container: BuildContainer) => Effect.Effect<string, BuildLost | ContainerError>
    /** Starts it and waits until it has ended, within all bounds and with the exit code 0. */
    readonly run: (
      id: string,
      printer: BuildPrinter
    ) => Effect.Effect<void, BuildFailed | BuildLost | ContainerError>
    /** Runs a program in one that runs, within the same bounds, and answers its exit code. */
    readonly exec: (
      id: string,
      program: Program,
      printer: BuildPrinter
    ) => Effect.Effect<number, BuildFailed | BuildLost | ContainerError>
    /** Fails if there is too little disk to build anything. */
    readonly hasRoom: Effect.Effect<void, BuildFailed>
    /** Removes those of a deployment; with ids: only these of them. */
    readonly clear: (uid: string, ids?: ReadonlySet<string>) => Effect.Effect<void, ContainerError>
    /** Deployments that there are containers of, with their organizations. */
    readonly remains: Effect.Effect<
      ReadonlyArray<{ readonly orgId: string; readonly uid: string }>,
      ContainerError
    >
  }
>()("svc/builds/BuildContainers") {
  static readonly layer = Layer.effect(
    BuildContainers,
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const installation = yield* Installation
      const options = yield* BuildOptions
      const { floorMb } = yield* settings
      const nameOf = (uid: string, part: BuildContainer["part"]) => `${installation.nameOf(uid)}-${part}`

      const hasRoom = Effect.gen(function* () {
        // An engine that does not answer is found out by the next call.
        const disk = Option.getOrUndefined(yield* Effect.option(engine.disk))
        if (disk === undefined) return
        if (disk.freeBytes >= floorMb * mebibyte && disk.freeFiles >= options.freeFiles) return
        return yield* new BuildFailed({
          errorCode: "build_unavailable",
          message: `The disk of the host is full: builds need ${floorMb} MiB and ${options.freeFiles} files to be free`
        })
      })

      /** Fails once it takes too much disk. Measuring goes through all of its files, so it is given a tenth of the time. */
      const overuse = Effect.fnUntraced(function* (id: string) {
        let tookMs = 0
        for (;;) {
          yield* Effect.sleep(Math.max(options.measureMs, tookMs * 10))
          const from = yield* Clock.currentTimeMillis
          const bytes = Option.getOrElse(yield* Effect.option(engine.written(id)), () => 0)
          tookMs = (yield* Clock.currentTimeMillis) - from
          if (bytes > options.diskMb * mebibyte)
            return yield* new BuildFailed({
              errorCode: "build_failed",
              message: `The build wrote more than ${options.diskMb} MiB`
            })
          yield* hasRoom
        }
      })

      type Note = (bytes: number) => Effect.Effect<void, BuildFailed>
      /** What prints, watched: for silence, for printing too much, and for taking too much disk. */
      const attend = Effect.fnUntraced(function* <A, E>(
        id: string,
        printing: (note: Note) => Effect.Effect<A, E>
      ) {
        let printedAt = yield* Clock.currentTimeMillis
        let printed = 0
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
        const note = Effect.fnUntraced(function* (bytes: number) {
          printedAt = yield* Clock.currentTimeMillis
          printed += bytes
          if (printed > options.printedBytes)
            return yield* new BuildFailed({
              errorCode: "build_failed",
              message: `The build printed more than ${options.printedBytes} bytes`
            })
        })
        return yield* Effect.raceAllFirst([printing(note), silence, overuse(id)])
      })

      return BuildContainers.of({
        make: Effect.fn("BuildContainers.make")(function* ({ orgId, uid, part, network, ...rest }) {
          const id = yield* engine.create({
            ...rest,
            name: nameOf(uid, part),
            labels: { ...installation.labels, "svc.organization": orgId },
            env: Redacted.make(rest.env),
            cpus: options.cpus,
            // Below everything else: databases and apps go first.
            cpuShares: 64,
            background: true,
            memoryMb: options.memoryMb,
            runtime: undefined,
            network: { kind: network },
            hostUsers: true,
            user: rest.user ?? `${buildUser}:${buildUser}`,
            largestFileMb: options.diskMb,
            oomScore: 800
          })
          return id ?? (yield* new BuildLost())
        }),
        run: Effect.fn("BuildContainers.run")(function* (id, printer) {
          yield* engine.run(id, { background: true })
          const { exitCode, outOfMemory } = yield* attend(id, (note) =>
            keepPrinted(engine, id, printer, note, options.logBytes)
          )
          if (outOfMemory)
            return yield* new BuildFailed({
              errorCode: "build_failed",
              message: `The build needed more than ${options.memoryMb} MiB of memory`
            })
          if (exitCode !== 0)
            return yield* new BuildFailed({
              errorCode: "build_failed",
              message: `The build ended with the exit code ${exitCode}`
            })
        }),
        exec: Effect.fn("BuildContainers.exec")(function* (id, program, { print, say }) {
          let left = options.logBytes
          return yield* attend(id, (note) =>
            engine.exec(
              id,
              program,
              Effect.fnUntraced(function* (pieces) {
                const before = left
                const bytes = pieces.reduce((sum, { content }) => sum + content.length, 0)
                yield* note(bytes)
                left -= bytes
                if (left >= 0) return yield* print(pieces)
                if (before >= 0) yield* say("The log is full. What is printed after this is not kept.")
              })
            )
          )
        }),
        hasRoom,
        clear: Effect.fn("BuildContainers.clear")(function* (uid, ids) {
          const prefix = `${installation.nameOf(uid)}-`
          const there = (yield* engine.list(installation.label)).flatMap(({ name }) =>
            name.startsWith(prefix) && ownName.test(name) ? [name] : []
          )
          // Of the usual ones also the networks of containers that were never made.
          const usual = ids === undefined ? (["build", "image", "stage0"] as const) : []
          yield* Effect.forEach(
            new Set([...usual.map((part) => nameOf(uid, part)), ...there]),
            Effect.fnUntraced(function* (name) {
              if (ids !== undefined) {
                const found = yield* engine.inspect(name)
                if (Option.isSome(found) && !ids.has(found.value.id)) return
              }
              yield* engine.remove(name)
            }),
            { concurrency: 4, discard: true }
          )
        }),
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

const mebibyte = 1024 * 1024
const ownName = /^svc-([0-9a-f-]{36})-(?:build|image|stage\d+)$/
