/** The process of a managed Postgres server: found by the pid file that it keeps itself, asked, and ended. */
import * as path from "node:path"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Host } from "../host/Host.ts"
import { failed, PostgresServerError } from "./error.ts"
import {
  askServer,
  isCut,
  isSilent,
  isStarting,
  type PostgresControlError,
  type PostgresLive
} from "./PostgresControl.ts"

export type PostgresProcess =
  | { readonly _tag: "Stopped" }
  /** Alive and not open yet: starting, replaying its log, or stopping. */
  | { readonly _tag: "Busy"; readonly pid: number }
  /** Alive, and neither opens nor refuses: it hangs, or the machine is far behind. */
  | { readonly _tag: "Silent"; readonly pid: number; readonly message: string }
  | { readonly _tag: "Running"; readonly pid: number; readonly live: PostgresLive }

export const everyMoment = Schedule.spaced("25 millis")
/** A server that was killed may still take connections for a moment; then it is not found any more. */
const whileEnding = {
  while: (error: PostgresServerError | PostgresControlError) =>
    error._tag === "PostgresControlError" && isCut(error),
  schedule: Schedule.spaced("50 millis"),
  times: 20
}
/** A fast stop waits for a checkpoint; after this an immediate one, which the next start recovers from. */
const fastStopSeconds = 30

export const makeProcesses = (
  host: Pick<Host["Service"], "isRunning" | "kill" | "readFile" | "socketDir">,
  dataOf: (uid: string) => string
) => {
  // Whole words of the path: the key of a standby begins with its primary's.
  const marker = (uid: string) => `/${uid}/conf`
  /** Pid of the server's main process, from the file it keeps itself. */
  const pidOf = Effect.fnUntraced(function* (uid: string) {
    const text = yield* Effect.mapError(host.readFile(path.join(dataOf(uid), "postmaster.pid")), failed)
    const pid = Number(Option.getOrElse(text, () => "").split("\n", 1)[0])
    if (!Number.isInteger(pid) || pid <= 1) return undefined
    return (yield* host.isRunning(pid, marker(uid))) ? pid : undefined
  })
  const look = Effect.fnUntraced(function* (uid: string, port: number | undefined, patience: Duration.Input) {
    const pid = yield* pidOf(uid)
    if (pid === undefined || port === undefined) return { _tag: "Stopped" } as const
    return yield* askServer({ socketDir: host.socketDir, port }).pipe(
      Effect.catchIf(isStarting, () => Effect.succeedNone),
      Effect.timeoutOption(patience),
      Effect.map(Option.flatten),
      Effect.map(
        Option.match({
          onNone: (): PostgresProcess => ({ _tag: "Busy", pid }),
          onSome: (live): PostgresProcess => ({ _tag: "Running", pid, live })
        })
      ),
      Effect.catchIf(isSilent, ({ message }) =>
        Effect.succeed<PostgresProcess>({ _tag: "Silent", pid, message })
      )
    )
  })
  const processOf = (uid: string, port: number | undefined, patience: Duration.Input = "1 minute") =>
    look(uid, port, patience).pipe(
      Effect.retry(whileEnding),
      Effect.mapError((error) => (error._tag === "PostgresServerError" ? error : failed(error)))
    )

  const gone = (uid: string, seconds: number) =>
    pidOf(uid).pipe(
      Effect.repeat({ until: (pid) => pid === undefined, schedule: everyMoment }),
      Effect.timeoutOption(`${seconds} seconds`)
    )

  /** Fast, then immediate (the next start recovers), then by force. */
  const halt = Effect.fnUntraced(function* (uid: string, pid: number) {
    for (const [signal, seconds] of [
      ["SIGINT", fastStopSeconds],
      ["SIGQUIT", 10],
      ["SIGKILL", 10]
    ] as const) {
      yield* host.kill(pid, signal)
      if (Option.isSome(yield* gone(uid, seconds))) return
    }
    return yield* new PostgresServerError({
      reason: "Failed",
      message: "The database server does not end"
    })
  })

  /** Ends a server whose data folder was taken from under it: it holds the socket, and would still take writes. */
  const endOrphan = Effect.fnUntraced(function* (uid: string, port: number) {
    const lock = path.join(host.socketDir, `.s.PGSQL.${port}.lock`)
    const text = yield* Effect.mapError(host.readFile(lock), failed)
    const pid = Number(Option.getOrElse(text, () => "").split("\n", 1)[0])
    if (!Number.isInteger(pid) || pid <= 1) return
    const runs = host.isRunning(pid, marker(uid))
    for (const signal of ["SIGQUIT", "SIGKILL"] as const) {
      if (!(yield* runs)) return
      yield* host.kill(pid, signal)
      yield* Effect.timeoutOption(
        Effect.repeat(runs, { until: (alive) => !alive, schedule: everyMoment }),
        "10 seconds"
      )
    }
  })

  return { pidOf, processOf, halt, endOrphan }
}
