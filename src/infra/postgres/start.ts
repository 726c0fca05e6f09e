/** Making the data folder of a managed server, and starting the server on it. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Host } from "../host/Host.ts"
import { oomScores, type ServerLimits } from "../host/server-limits.ts"
import { logSince, logSize, postgresLog } from "../host/server-logs.ts"
import type { Assigned, PostgresActs, PostgresTarget } from "./assigned.ts"
import { PostgresServerError } from "./error.ts"
import type { ServerFolders } from "./folders.ts"
import type { PostgresBinaries } from "./PostgresBinaries.ts"
import { askServer, isStarting, type PostgresEndpoint } from "./PostgresControl.ts"
import { everyMoment } from "./process.ts"
import { initdbArguments } from "./settings.ts"

const startSeconds = 60

interface Parts extends Pick<PostgresActs, "act" | "writeAssigned"> {
  readonly endpoint: (now: Assigned) => PostgresEndpoint
  readonly folders: ServerFolders
  readonly host: Host["Service"]
  readonly pidOf: (uid: string) => Effect.Effect<number | undefined, PostgresServerError>
  readonly programs: PostgresBinaries["Service"]
}

export const makeStart = ({ act, endpoint, folders, host, pidOf, programs, writeAssigned }: Parts) => {
  const { confOf, dataOf, dirOf } = folders

  return {
    initialise: (target: PostgresTarget) =>
      act("postgres.initialise", target, () =>
        Effect.gen(function* () {
          const { uid } = target
          const making = `${dataOf(uid)}.making`
          // What an interrupted attempt left holds nobody's data.
          yield* host.removeAll(making)
          const result = yield* host.run(programs.initdb, initdbArguments(making), { timeoutMs: 120_000 })
          if (result.code !== 0) {
            return yield* new PostgresServerError({
              reason: "Failed",
              message: `initdb failed: ${lastLine(result.output)}`
            })
          }
          yield* Effect.tryPromise({
            try: () => fs.rename(making, dataOf(uid)),
            catch: (cause) =>
              new PostgresServerError({
                reason: "Failed",
                message: "The new data folder could not be named",
                cause
              })
          })
        })
      ),

    start: (target: PostgresTarget, limits: ServerLimits) =>
      act("postgres.start", target, (now) =>
        Effect.gen(function* () {
          const { uid } = target
          if ((yield* pidOf(uid)) !== undefined) return
          const logFile = path.join(dirOf(uid), postgresLog)
          const before = yield* logSize(logFile)
          const pid = yield* host.spawn({
            command: programs.postgres,
            args: ["-D", confOf(uid)],
            cwd: dirOf(uid),
            logFile,
            limits: { name: uid, limits },
            oomScore: oomScores.server,
            // A backend that takes too much goes before the process that starts all others again.
            // (PostgreSQL documentation, "Linux Memory Overcommit")
            env: {
              PG_OOM_ADJUST_FILE: "/proc/self/oom_score_adj",
              PG_OOM_ADJUST_VALUE: String(oomScores.partOfServer)
            }
          })
          const ended = Effect.map(host.isRunning(pid, uid), (alive) => !alive)
          const open = askServer(endpoint(now)).pipe(
            Effect.map(Option.isSome),
            Effect.catchIf(isStarting, () => Effect.succeed(false))
          )
          const settled = yield* Effect.gen(function* () {
            if (yield* open) return "open" as const
            return (yield* ended) ? ("ended" as const) : ("waiting" as const)
          }).pipe(
            Effect.repeat({ until: (state) => state !== "waiting", schedule: everyMoment }),
            Effect.timeoutOption(`${startSeconds} seconds`)
          )
          // Still replaying its log is no failure: the next look finds it busy and waits.
          if (Option.isSome(settled) && settled.value === "ended") {
            const log = yield* logSince(logFile, before)
            const reason = log.split("\n").findLast((line) => /FATAL|PANIC/.test(line)) ?? log
            const message = `The database server ended as it started: ${lastLine(reason)}`
            if (!notOfTheData.test(log)) {
              const count = (now.startFailures?.count ?? 0) + 1
              yield* writeAssigned(uid, { ...now, startFailures: { count, message } })
            }
            return yield* new PostgresServerError({ reason: "StartFailed", message })
          }
          if (Option.isSome(settled) && now.startFailures !== undefined) {
            const { startFailures: _, ...opened } = now
            yield* writeAssigned(uid, opened)
          }
        })
      )
  }
}

const lastLine = (text: string): string => text.trim().split("\n").at(-1)?.slice(0, 300) ?? "no reason given"

/** Another data folder would meet the same: an address that is taken, a setting, memory, a full disk. */
const notOfTheData =
  /could not bind|could not create|lock file|configuration file|shared memory|allocate memory|could not fork|No space left|another postmaster|already in use/i
