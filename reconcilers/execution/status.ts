/** How an execution is told to people: its status, and why it is not ready. */
import type { ExecutionStatus } from "#schemas/execution.ts"
import type { Run } from "#src/executions/Runs.ts"
import type { Step } from "./state-machine.ts"

export const statusMessages: Readonly<Record<Exclude<Step["do"], "wait" | "nothing">, string>> = {
  begin: "it is to begin",
  startEngine: "the container engine is to be started",
  room: "it needs memory of this host",
  pull: "its image is to be fetched",
  turn: "whether it is its turn to fetch the image has changed",
  pulled: "its image is there",
  make: "its container is to be made",
  start: "its container is to be started",
  running: "its command has begun",
  follow: "what it prints is to be kept",
  stop: "its command is to end",
  tell: "its command is to be told to end",
  kill: "its command is to be ended by force",
  lost: "whether the container engine answers has changed",
  end: "it has come to its end",
  giveUpLogs: "what it printed cannot be read any more",
  cleanUp: "its container is to be removed"
}

export const reasonOf = ({ status, imageId, finishedAt, cleanupStatus }: Run) => ({
  reason:
    finishedAt !== null
      ? cleanupStatus === "attention_required"
        ? "CleanupFailing"
        : "CleaningUp"
      : status === "running"
        ? "ExecutionRunning"
        : imageId === null
          ? "ImagePulling"
          : "ContainerStarting"
})

export const statusOf = (run: Run): ExecutionStatus => ({
  state: run.status,
  exitCode: run.exitCode,
  errorCode: run.errorCode,
  error: run.error,
  cleanupStatus: run.cleanupStatus,
  imageDigest: run.imageDigest,
  startedAt: run.startedAt?.toISOString() ?? null,
  finishedAt: run.finishedAt?.toISOString() ?? null
})

const reasons = {
  failed: "ExecutionFailed",
  timed_out: "ExecutionTimedOut",
  cancelled: "ExecutionCancelled"
} as const

/** Nothing is left to do for one that has ended, so it is ready; that it did not succeed is told all the same. */
export const noteOf = ({ status, error, errorCode }: Run) =>
  status === "failed" || status === "timed_out" || status === "cancelled"
    ? {
        note: {
          reason: reasons[status],
          message:
            error === null ? "It was cancelled" : errorCode === null ? error : `${error} (${errorCode})`
        }
      }
    : {}
