/**
 * What is due for an execution, by how it stands, what there is of its container, and the time: the rules by which an
 * execution goes from one state to the next, without any doing.
 */
import type { ExecutionErrorCode, ExecutionSpec } from "#schemas/execution.ts"
import type { ExecutionOptions } from "#src/executions/options.ts"
import type { Pull } from "#src/executions/Pulls.ts"
import type { Ending, Run } from "#src/executions/Runs.ts"
import type { Container } from "#src/infra/containers/ContainerEngine.ts"

/** What can be seen of the container. */
export type Seen =
  | { readonly _tag: "There"; readonly container: Container }
  | { readonly _tag: "Gone" }
  /** The engine did not say. `startable`: it is ours and can be started. */
  | {
      readonly _tag: "Silent"
      readonly startable: boolean
      readonly missing: boolean
      readonly message: string
    }

export type Step =
  | {
      readonly do:
        | "begin"
        | "room"
        | "pull"
        | "make"
        | "start"
        | "tell"
        | "kill"
        | "giveUpLogs"
        | "cleanUp"
        | "follow"
    }
  | { readonly do: "startEngine"; readonly message: string }
  | { readonly do: "turn"; readonly at: Date | null }
  | {
      readonly do: "pulled"
      readonly image: { readonly id: string; readonly digest: string | null }
      readonly at: Date
    }
  | { readonly do: "running"; readonly startedAt: Date }
  | { readonly do: "stop"; readonly reason: "cancelled" | "timed_out"; readonly at: Date }
  | { readonly do: "lost"; readonly since: Date | null }
  | { readonly do: "end"; readonly ending: Ending }
  /** Nothing to do but to look again. */
  | { readonly do: "wait"; readonly reason: string; readonly message: string; readonly forMs: number }
  | { readonly do: "nothing" }

export interface Situation {
  readonly now: number
  readonly spec: ExecutionSpec
  readonly run: Run | undefined
  readonly seen: Seen
  readonly pull: Pull | undefined
  /** Somebody keeps what it prints. */
  readonly followed: boolean
  readonly options: ExecutionOptions
}

/** Fetching and the container tell when they have ended: this is for when that came to nothing. */
const lookMs = 2_000

export const decide = (situation: Situation): Step => {
  const { run } = situation
  if (run === undefined) return { do: "begin" }
  if (run.finishedAt !== null) return afterwards(situation, run, run.finishedAt)
  return run.status === "starting" ? starting(situation, run) : running(situation, run)
}

/** Whether the container has to be looked at. */
export const needsContainer = (run: Run | undefined): boolean =>
  run?.containerMade === true && run.cleanupStatus !== "confirmed"

const ending = (
  now: number,
  status: Ending["status"],
  values: {
    readonly errorCode?: ExecutionErrorCode
    readonly error?: string
    readonly container?: Container
    readonly startedAt?: Date | null
  } = {}
): Step => {
  const startedAt = values.container?.startedAt ?? values.startedAt ?? null
  const finishedAt = values.container?.finishedAt ?? new Date(now)
  return {
    do: "end",
    ending: {
      status,
      errorCode: values.errorCode ?? null,
      error: values.error ?? null,
      exitCode: values.container?.exitCode ?? null,
      startedAt,
      // Podman says when it has noted the start, and what is short has ended by then.
      finishedAt: startedAt !== null && startedAt > finishedAt ? startedAt : finishedAt
    }
  }
}

const starting = ({ now, spec, run: _, seen, pull, options }: Situation, run: Run): Step => {
  const container = seen._tag === "There" ? seen.container : undefined
  if (container?.state === "exited") return exited(now, container, run)
  if (container?.state === "running") {
    return { do: "running", startedAt: container.startedAt ?? new Date(now) }
  }
  if (spec.cancelRequested) return ending(now, "cancelled", { error: "It was cancelled before it began" })
  if (run.imageId === null && pull?._tag === "Failed") {
    return ending(now, "failed", { errorCode: pull.errorCode, error: pull.message })
  }
  if (run.turnAt === null && now > run.begunAt.getTime() + options.queueMs) {
    return ending(now, "failed", {
      errorCode: "start_failed",
      error: `Its turn did not come within ${options.queueMs / 1000} s`
    })
  }
  if (run.turnAt !== null && now > run.turnAt.getTime() + options.startupMs) {
    const message = `It did not begin within ${options.startupMs / 1000} s`
    return run.imageId === null && seen._tag !== "Silent"
      ? ending(now, "failed", {
          errorCode: "image_pull_failed",
          error: `${message}: the image was still being fetched`
        })
      : ending(now, "failed", {
          errorCode: "start_failed",
          error: seen._tag === "Silent" ? `${message}: ${seen.message}` : message
        })
  }
  if (seen._tag === "Silent") {
    if (run.lostSince === null) return { do: "lost", since: new Date(now) }
    if (now > run.lostSince.getTime() + options.engineMs) {
      return ending(now, "failed", {
        errorCode: "start_failed",
        error: `No container could be made for ${options.engineMs / 1000} s: ${seen.message}`
      })
    }
    return silent(seen)
  }
  if (run.lostSince !== null) return { do: "lost", since: null }
  if (run.imageId === null) {
    if (run.roomMb === null) return { do: "room" }
    if (pull === undefined) return { do: "pull" }
    if (pull._tag === "Pulled") return { do: "pulled", image: pull.image, at: new Date(now) }
    if (pull._tag === "Queued") {
      // Another process had begun, and is gone.
      if (run.turnAt !== null) return { do: "turn", at: null }
      return {
        do: "wait",
        reason: "ImagePulling",
        message: "It waits for its turn to fetch the image: others are being fetched",
        forMs: 1_000
      }
    }
    if (run.turnAt === null && pull._tag === "Pulling") return { do: "turn", at: new Date(pull.since) }
    return { do: "wait", reason: "ImagePulling", message: "The image is being fetched", forMs: lookMs }
  }
  return container === undefined ? { do: "make" } : { do: "start" }
}

const silent = ({ startable, missing, message }: Seen & { readonly _tag: "Silent" }): Step =>
  startable
    ? { do: "startEngine", message }
    : {
        do: "wait",
        reason: missing ? "HostDependencyMissing" : "EngineUnreachable",
        message,
        forMs: 1_000
      }

const exited = (now: number, container: Container, { stopReason, startedAt }: Run): Step => {
  const about = { container, startedAt }
  if (stopReason === "timed_out") return ending(now, "timed_out", { ...about, error: "It ran out of time" })
  if (stopReason === "cancelled") return ending(now, "cancelled", about)
  if (container.outOfMemory) {
    return ending(now, "failed", {
      ...about,
      errorCode: "out_of_memory",
      error: "It needed more memory than it may have"
    })
  }
  return container.exitCode === 0
    ? ending(now, "succeeded", about)
    : ending(now, "failed", { ...about, error: `The command ended with exit code ${container.exitCode}` })
}

const running = ({ now, spec, seen, followed, options }: Situation, run: Run): Step => {
  if (seen._tag === "Gone") {
    return ending(now, "failed", {
      errorCode: "host_lost",
      error: "The container is gone",
      startedAt: run.startedAt
    })
  }
  if (seen._tag === "Silent") {
    if (run.lostSince === null) return { do: "lost", since: new Date(now) }
    if (now > run.lostSince.getTime() + options.hostLostMs) {
      return ending(now, "failed", {
        errorCode: "host_lost",
        error: `The container engine did not answer for ${options.hostLostMs / 1000} s`,
        startedAt: run.startedAt
      })
    }
    return silent(seen)
  }
  const { container } = seen
  if (container.state !== "running") return exited(now, container, run)
  if (run.lostSince !== null) return { do: "lost", since: null }
  // Ending it comes first: nothing that hinders a follower may let it run on.
  const startedAt = (run.startedAt ?? run.begunAt).getTime()
  const timeoutAt = startedAt + spec.timeoutSeconds * 1000
  if (run.stopAt !== null) {
    const killAt = run.stopAt.getTime() + options.graceMs
    if (!run.stopSent) return { do: "tell" }
    if (now >= killAt) return { do: "kill" }
    if (!followed) return { do: "follow" }
    return {
      do: "wait",
      reason: "ExecutionStopping",
      message: "The command was told to end",
      forMs: Math.min(lookMs, killAt - now)
    }
  }
  if (spec.cancelRequested) return { do: "stop", reason: "cancelled", at: new Date(now) }
  if (now >= timeoutAt) return { do: "stop", reason: "timed_out", at: new Date(now) }
  if (!followed) return { do: "follow" }
  // Short ones are looked at more often; a cancellation wakes it by itself.
  const often = Math.min(10_000, Math.max(lookMs, (now - startedAt) / 20))
  return {
    do: "wait",
    reason: "ExecutionRunning",
    message: "The command runs",
    forMs: Math.min(often, Math.max(10, timeoutAt - now))
  }
}

const afterwards = ({ now, seen, followed, options }: Situation, run: Run, finishedAt: Date): Step => {
  if (run.cleanupStatus === "confirmed") return { do: "nothing" }
  const container = seen._tag === "There" ? seen.container : undefined
  if (container !== undefined && !run.logComplete) {
    // What runs on although it counts as lost may print for ever.
    if (container.state !== "exited" || now > finishedAt.getTime() + options.captureMs)
      return { do: "giveUpLogs" }
    return followed
      ? { do: "wait", reason: "CleaningUp", message: "What it printed is being kept", forMs: 100 }
      : { do: "follow" }
  }
  if (run.containerMade && seen._tag === "Silent") {
    if (seen.startable) return { do: "startEngine", message: seen.message }
    // Removing the container may well succeed the next moment, and would take the rest of its log along.
    if (!run.logComplete && now <= finishedAt.getTime() + options.captureMs) return silent(seen)
  }
  return { do: "cleanUp" }
}
