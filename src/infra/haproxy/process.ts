/**
 * The process of HAProxy: finding it, starting it, reloading and ending it. It is started detached as a master with a
 * worker, in its own folder, to which all names in its configuration are relative; it outlives the control plane.
 */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Host } from "../host/Host.ts"
import { processesNaming } from "../host/processes-naming.ts"
import { oomScores } from "../host/server-limits.ts"
import { logSince, logSize } from "../host/server-logs.ts"
import { readInfo } from "./control.ts"
import { failed, HaproxyError } from "./errors.ts"

export interface HaproxyPlace {
  readonly dir: string
  /** Of the control socket; it may have 107 bytes. */
  readonly socket: string
}

/** That of the edge on this machine; one for each data folder. */
export const edgePlace = (host: Host["Service"]): HaproxyPlace => ({
  dir: path.join(host.dataDir, "edge"),
  socket: path.join(host.socketDir, "edge.control")
})

export const configName = "haproxy.cfg"
const pidName = "haproxy.pid"
export const logName = "haproxy.log"
const maxLogBytes = 1 << 20
/** It reads all certificates before it answers: some milliseconds each. */
const startMs = 120_000
/** One that fails is not told of: the worker before it goes on. */
const reloadMs = 30_000
const stopMs = 5_000

export const makeHaproxy = (host: Host["Service"]) => {
  const configOf = ({ dir }: HaproxyPlace) => path.join(dir, configName)
  const isRunning = (place: HaproxyPlace, pid: number) => host.isRunning(pid, configOf(place))

  const program = Effect.gen(function* () {
    const found = yield* host.which("haproxy")
    if (Option.isSome(found)) return found.value
    return yield* new HaproxyError({
      reason: "Missing",
      message:
        "HAProxy is not installed on this host; install it with: apt-get install -y --no-install-recommends haproxy"
    })
  })

  /** Processes of it, the master first; also those whose pid file is gone. */
  const processes = Effect.fnUntraced(function* (place: HaproxyPlace) {
    const text = yield* Effect.mapError(host.readFile(path.join(place.dir, pidName)), failed)
    const recorded = Number.parseInt(
      Option.getOrElse(text, () => ""),
      10
    )
    const pids = yield* processesNaming(`-f\0${configOf(place)}\0`)
    const all = [...new Set([recorded, ...pids])].filter((pid) => Number.isInteger(pid) && pid > 1)
    return yield* Effect.filter(all, (pid) => isRunning(place, pid))
  })

  /** Refuses what HAProxy would only warn of: what it warns of is mostly a rule that never applies. */
  const check = Effect.fnUntraced(function* (place: HaproxyPlace, config: string) {
    const candidate = path.join(place.dir, `${configName}.new`)
    yield* Effect.mapError(host.writeFile(candidate, config), failed)
    const { code, output } = yield* Effect.mapError(
      host.run(yield* program, ["-dW", "-c", "-f", candidate], { cwd: place.dir, timeoutMs: startMs }),
      failed
    )
    yield* Effect.mapError(host.removeAll(candidate), failed)
    if (code === 0) return
    const words = output
      .split("\n")
      .filter((line) => /^\[(ALERT|WARNING)\]/.test(line))
      .join(" | ")
    return yield* new HaproxyError({
      reason: "ConfigRefused",
      message: `HAProxy refuses its configuration: ${(words || output).slice(0, 1_000)}`
    })
  })

  /** Why it did not start. */
  const alerts = (text: string) =>
    text
      .split("\n")
      .filter((line) => /ALERT/.test(line))
      .slice(0, 3)
      .join(" | ")
      .slice(0, 500)

  const answers = (place: HaproxyPlace) =>
    Effect.matchEffect(readInfo(place.socket), {
      onSuccess: () => Effect.succeed(true),
      onFailure: (error) =>
        ["Closed", "Cut", "Failed"].includes(error.reason) ? Effect.succeed(false) : Effect.fail(error)
    })

  const stop = Effect.fnUntraced(function* (place: HaproxyPlace) {
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      for (const pid of yield* processes(place)) yield* host.kill(pid, signal)
      const gone = yield* Effect.map(processes(place), (left) => left.length === 0).pipe(
        Effect.repeat({ until: (done) => done, schedule: every(20) }),
        Effect.timeoutOption(stopMs)
      )
      if (Option.isSome(gone)) return
    }
    return yield* new HaproxyError({ reason: "Failed", message: "HAProxy cannot be ended" })
  })

  return {
    program,
    check,
    processes,
    /** Starts it from the files in its folder, and waits until it answers. Nothing of it may run any more. */
    start: Effect.fnUntraced(function* (place: HaproxyPlace) {
      const command = yield* program
      const log = path.join(place.dir, logName)
      const size = yield* logSize(log)
      if (size > maxLogBytes) yield* Effect.mapError(host.removeAll(log), failed)
      yield* Effect.mapError(host.removeAll(place.socket), failed)
      const pid = yield* Effect.mapError(
        host.spawn({
          command,
          args: ["-W", "-f", configOf(place), "-p", path.join(place.dir, pidName)],
          cwd: place.dir,
          logFile: log,
          oomScore: oomScores.server
        }),
        failed
      )
      const ready = Effect.gen(function* () {
        if (yield* answers(place)) return true
        if (yield* isRunning(place, pid)) return false
        return yield* new HaproxyError({
          reason: "StartFailed",
          message: `HAProxy ended as soon as it was started: ${alerts(yield* logSince(log, size > maxLogBytes ? 0 : size))}`
        })
      })
      yield* ready.pipe(
        Effect.repeat({ until: (done) => done, schedule: every(20) }),
        Effect.timeoutOrElse({
          duration: startMs,
          orElse: () =>
            Effect.fail(
              new HaproxyError({ reason: "StartFailed", message: "HAProxy was started and does not answer" })
            )
        }),
        // One that nobody waited for holds the ports.
        Effect.onError(() => Effect.ignore(stop(place)))
      )
    }),
    /**
     * Takes up a new configuration: a new worker listens, and the one before goes on with the connections that it has.
     * (Management guide, section 4: SIGUSR2 to the master.)
     */
    reload: Effect.fnUntraced(function* (place: HaproxyPlace) {
      const before = yield* readInfo(place.socket)
      const [master] = yield* processes(place)
      if (master === undefined)
        return yield* new HaproxyError({ reason: "Closed", message: "HAProxy does not run" })
      yield* host.kill(master, "SIGUSR2")
      yield* Effect.orElseSucceed(readInfo(place.socket), () => before).pipe(
        Effect.repeat({ until: ({ pid }) => pid !== before.pid, schedule: every(20) }),
        Effect.timeoutOrElse({
          duration: reloadMs,
          orElse: () =>
            Effect.fail(
              new HaproxyError({
                reason: "StartFailed",
                message: "HAProxy did not take up its new configuration"
              })
            )
        })
      )
    }),
    /** Ends it at once, with all connections; nothing running is success. */
    stop
  }
}

const every = (ms: number) => Schedule.spaced(ms)
