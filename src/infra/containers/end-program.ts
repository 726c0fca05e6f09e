/**
 * Ending a program that was started in a container that runs on. Engines have no call for it; they tell its process, which
 * leads a group of its own (runc makes it the leader of a session).
 */
import * as fs from "node:fs"
import type Docker from "dockerode"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

const Told = Schema.Struct({ Running: Schema.Boolean, Pid: Schema.Int, ContainerID: Schema.String })
const decode = Schema.decodeUnknownSync(Told)

/** A number may be another process's by now, or that of another machine: only one of the container's is ended. */
const isOf = (pid: number, containerId: string): boolean => {
  try {
    return pid > 1 && fs.readFileSync(`/proc/${pid}/cgroup`, "utf8").includes(containerId)
  } catch {
    return false
  }
}

const signal = (pid: number, name: "SIGTERM" | "SIGKILL"): void => {
  for (const target of [-pid, pid])
    try {
      process.kill(target, name)
    } catch {
      // It has just ended, or leads no group.
    }
}

/** SIGTERM, and SIGKILL after three seconds. What cannot be ended ends with its container. */
export const endProgram = (exec: Docker.Exec): Effect.Effect<void> =>
  Effect.gen(function* () {
    const told = yield* Effect.tryPromise(async () => decode(await exec.inspect()))
    if (!told.Running) return
    const { Pid, ContainerID } = told
    const runs = Effect.sync(() => isOf(Pid, ContainerID))
    if (!(yield* runs)) return
    signal(Pid, "SIGTERM")
    const ended = yield* runs.pipe(
      Effect.repeat({ until: (still) => !still, schedule: Schedule.spaced("100 millis") }),
      Effect.timeoutOption("3 seconds")
    )
    if (ended._tag === "None" && (yield* runs)) signal(Pid, "SIGKILL")
  }).pipe(
    Effect.timeout("10 seconds"),
    Effect.catchCause((cause) => Effect.logWarning("a program in a container could not be ended", cause))
  )
