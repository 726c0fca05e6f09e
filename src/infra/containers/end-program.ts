/**
 * Ending a program that was started in a container that runs on, with all that it has started. Engines have no call for
 * it; its processes are told themselves.
 */
import type Docker from "dockerode"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { findOverdue, makeOwnProcesses } from "./own-processes.ts"

const Told = Schema.Struct({ Running: Schema.Boolean, Pid: Schema.Int, ContainerID: Schema.String })
const decode = Schema.decodeUnknownSync(Told)

const signal = (pids: ReadonlyArray<number>, name: "SIGTERM" | "SIGKILL"): void => {
  for (const pid of pids)
    try {
      process.kill(pid, name)
    } catch {
      // It has just ended.
    }
}

const soon = Schedule.spaced("100 millis")

/**
 * SIGTERM, and SIGKILL after three seconds, again and again until nothing is left: one may start others while it is ended.
 * What cannot be ended ends with its container. `over`: the program itself has ended.
 */
export const endProgram = (exec: Docker.Exec, mark: string, over: boolean): Effect.Effect<void> =>
  Effect.gen(function* () {
    const told = yield* Effect.tryPromise(async () => decode(await exec.inspect()))
    const first = told.Running && told.Pid > 1 ? told.Pid : undefined
    const look = Effect.sync(makeOwnProcesses({ containerId: told.ContainerID, mark, first }))
    // An engine that was asked to start it a moment ago may be about to.
    if (!over && isNone(yield* look))
      yield* Effect.repeat(look, { until: (pids) => !isNone(pids), schedule: soon, times: 10 })
    yield* endProcesses(look)
  }).pipe(bounded)

/**
 * Ends the programs in these containers that should have ended long ago: whoever was to see to it was killed. Answers how
 * many there were. A program that has changed its variables does so to itself alone.
 */
export const endOverduePrograms = (containerIds: ReadonlySet<string>, now: number): Effect.Effect<number> =>
  Effect.gen(function* () {
    const overdue = yield* Effect.sync(() => findOverdue(containerIds, now))
    yield* Effect.forEach(
      overdue,
      (program) => bounded(endProcesses(Effect.sync(makeOwnProcesses(program)))),
      { concurrency: 4, discard: true }
    )
    return overdue.length
  })

const isNone = (pids: ReadonlyArray<number>) => pids.length === 0

const endProcesses = Effect.fnUntraced(function* (look: Effect.Effect<ReadonlyArray<number>>) {
  const found = yield* look
  if (isNone(found)) return
  signal(found, "SIGTERM")
  const left = yield* look.pipe(
    Effect.repeat({ until: isNone, schedule: soon }),
    Effect.timeoutOption("3 seconds")
  )
  if (left._tag === "Some") return
  yield* Effect.map(look, (pids) => {
    signal(pids, "SIGKILL")
    return pids
  }).pipe(Effect.repeat({ until: isNone, schedule: soon }))
})

const bounded = <E>(ending: Effect.Effect<void, E>): Effect.Effect<void> =>
  ending.pipe(
    Effect.timeout("15 seconds"),
    Effect.catchCause((cause) => Effect.logWarning("a program in a container could not be ended", cause))
  )
