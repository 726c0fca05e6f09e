/** The process of a managed cache server: finding it, starting it and ending it. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Host, SpawnOptions } from "../host/Host.ts"
import { processesNaming } from "../host/processes-naming.ts"
import { oomScores } from "../host/server-limits.ts"
import { logSince, logSize } from "../host/server-logs.ts"
import { failed, RedisServerError } from "./errors.ts"
import { exists } from "./files.ts"
import {
  type LiveServer,
  type RedisControlError,
  type RedisEndpoint,
  RedisPatience,
  readLive
} from "./RedisControl.ts"
import { configName, logName, pidName } from "./settings.ts"

export type RedisProcess =
  | { readonly _tag: "Stopped" }
  /** It runs and cannot be controlled. */
  | {
      readonly _tag: "Uncontrolled"
      readonly pid: number
      /**
       * `lost`: its socket is gone or its control user is not the one it should be; only a restart helps. `busy`: a
       * script runs, and it says so. `silent`: it gave no answer. `refusing`: it answers something else, such as that
       * it has no room for another connection. All but the first may pass.
       */
      readonly state: "lost" | "busy" | "silent" | "refusing"
      readonly message: string
    }
  | { readonly _tag: "Running"; readonly pid: number; readonly live: LiveServer }

export interface RedisPlace {
  readonly dir: string
  readonly endpoint: RedisEndpoint
}

const states = {
  closed: "lost",
  cut: "refusing",
  refused: "lost",
  busy: "busy",
  silent: "silent",
  failed: "refusing"
} as const

const programs = ["redis-server", "valkey-server"]
const oldestMajor = 7
const maxLogBytes = 1024 * 1024
/** A process that was killed may still take connections, while it is no longer found by its command line. */
const whileEnding = {
  while: (error: RedisControlError) => error.reason === "cut",
  schedule: Schedule.spaced(50),
  times: 20
}

export const makeProcesses = (host: Host["Service"]) => {
  /** The process is known by its command line, which names the configuration file in its own folder. */
  const isRunning = ({ dir }: RedisPlace, pid: number) => host.isRunning(pid, path.join(dir, configName))

  const recorded = Effect.fnUntraced(function* (place: RedisPlace) {
    const text = yield* Effect.mapError(host.readFile(path.join(place.dir, pidName)), failed)
    const pid = Number.parseInt(
      Option.getOrElse(text, () => ""),
      10
    )
    return Number.isInteger(pid) && pid > 1 && (yield* isRunning(place, pid)) ? pid : undefined
  })

  const find = Effect.fnUntraced(function* (place: RedisPlace, settings: ReadonlyArray<string>) {
    const pid = yield* recorded(place)
    const stopped: RedisProcess = { _tag: "Stopped" }
    if (pid === undefined && !(yield* exists(place.endpoint.socket))) return stopped
    const looked = yield* Effect.result(Effect.retry(readLive(place.endpoint, settings), whileEnding))
    if (looked._tag === "Success") {
      const running: RedisProcess = { _tag: "Running", pid: looked.success.processId, live: looked.success }
      return running
    }
    const { reason, message } = looked.failure
    if (pid === undefined) return reason === "closed" ? stopped : yield* failed(looked.failure)
    const uncontrolled: RedisProcess = { _tag: "Uncontrolled", pid, state: states[reason], message }
    return uncontrolled
  })

  /** A server that has lost its pid file tells its pid itself. */
  const answering = Effect.fnUntraced(function* (place: RedisPlace) {
    const process = yield* find(place, ["port"])
    return process._tag === "Stopped" ? undefined : process.pid
  })

  const program = Effect.gen(function* () {
    for (const name of programs) {
      const found = yield* host.which(name)
      if (Option.isNone(found)) continue
      const { output } = yield* Effect.mapError(
        host.run(found.value, ["--version"], { timeoutMs: 10_000 }),
        failed
      )
      if (Number(/\bv=(\d+)/.exec(output)?.[1] ?? 0) >= oldestMajor) return found.value
    }
    return yield* new RedisServerError({
      reason: "HostDependencyMissing",
      message: `No redis-server (or valkey-server) of version ${oldestMajor} or newer is installed on this host; install it with: apt-get install redis-server`
    })
  })

  /** Why it did not start. */
  const lastWords = (text: string) => text.trim().split("\n").slice(-2).join(" | ").slice(-500)

  /** Of the server that runs; one that has lost its pid file is asked. */
  const pidOf = (place: RedisPlace) =>
    Effect.flatMap(recorded(place), (pid) => (pid === undefined ? answering(place) : Effect.succeed(pid)))

  const end = Effect.fnUntraced(function* (place: RedisPlace, pid: number) {
    const { stopMs } = yield* RedisPatience
    const gone = Effect.map(isRunning(place, pid), (running) => !running)
    yield* host.kill(pid, "SIGTERM")
    yield* until(gone, stopMs, () => host.kill(pid, "SIGKILL"))
    yield* until(gone, stopMs, () =>
      Effect.fail(
        new RedisServerError({
          reason: "Failed",
          message: `The process ${pid} of the server cannot be ended`
        })
      )
    )
  })

  return {
    find,
    pidOf,
    program,
    start: Effect.fnUntraced(function* (place: RedisPlace, limits: SpawnOptions["limits"] & {}) {
      const command = yield* program
      const { startMs } = yield* RedisPatience
      const log = path.join(place.dir, logName)
      const before = yield* logSize(log)
      const listens = Effect.fnUntraced(function* (pid: number) {
        return (yield* recorded(place)) === pid && (yield* exists(place.endpoint.socket))
      })
      const notAnswering = new RedisServerError({
        reason: "NotAnswering",
        message: `The server was started and does not listen after ${startMs / 1000} s`
      })
      // Whoever began it may have been killed before it told its pid. Two would share a folder.
      const [begun] = yield* processesNaming(path.join(place.dir, configName))
      if (begun !== undefined) {
        const runs = isRunning(place, begun)
        const decided = Effect.gen(function* () {
          return (yield* listens(begun)) || !(yield* runs)
        })
        yield* until(decided, startMs, () => Effect.andThen(end(place, begun), notAnswering))
        if (yield* runs) return
      }
      if (before > maxLogBytes) yield* Effect.mapError(host.removeAll(log), failed)
      const spawned = yield* Effect.mapError(
        host.spawn({
          command,
          args: [path.join(place.dir, configName)],
          cwd: place.dir,
          logFile: log,
          limits,
          oomScore: oomScores.server
        }),
        failed
      )
      const ready = Effect.gen(function* () {
        if (yield* listens(spawned)) return true
        if (yield* isRunning(place, spawned)) return false
        return yield* new RedisServerError({
          reason: "StartFailed",
          message: `The server ended as soon as it was started: ${lastWords(yield* logSince(log, before > maxLogBytes ? 0 : before))}`
        })
      })
      yield* until(ready, startMs, () => notAnswering)
    }),
    stop: Effect.fnUntraced(function* (place: RedisPlace) {
      const pid = yield* pidOf(place)
      if (pid !== undefined) yield* end(place, pid)
    })
  }
}

const until = <E, E2>(
  condition: Effect.Effect<boolean, E>,
  limitMs: number,
  otherwise: () => Effect.Effect<void, E2>
): Effect.Effect<void, E | E2> =>
  Effect.timeoutOrElse(
    Effect.gen(function* () {
      while (!(yield* condition)) yield* Effect.sleep(10)
    }),
    { duration: limitMs, orElse: otherwise }
  )
