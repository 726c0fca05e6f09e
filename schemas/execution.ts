/** `Execution`: a container that runs one command to its end. What it runs cannot be changed, only cancelled. */
import * as Schema from "effect/Schema"
import { CpuKind, Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"

export const ExecutionResources = Schema.Struct({
  cpuKind: CpuKind,
  cpus: Schema.Finite,
  memoryMb: Schema.Int
}).annotate({ identifier: "ExecutionResources" })
export type ExecutionResources = typeof ExecutionResources.Type

export const ExecutionRuntime = Schema.Struct({ nestedContainers: Schema.Boolean }).annotate({
  identifier: "ExecutionRuntime"
})

/** Values of variables and credentials are sealed under the fields `env` and `imagePullCredentials`, and nowhere else. */
export const ExecutionSpec = Schema.Struct({
  /** As it was asked for; with `deployment`, the digest of its image. */
  image: Schema.String,
  /** Whose image it runs, with the variables and servers of its environment. */
  deployment: Schema.optionalKey(Schema.Struct({ uid: Schema.String, environment: Schema.String })),
  command: Schema.Array(Schema.String),
  region: Region,
  resources: ExecutionResources,
  runtime: ExecutionRuntime,
  timeoutSeconds: Schema.Int,
  /** Whether it gets the variables of an environment, passwords among them, and reaches its servers: that of `deployment`, otherwise production. */
  services: withDefault(Schema.Boolean, false),
  cancelRequested: withDefault(Schema.Boolean, false)
}).annotate({ identifier: "ExecutionSpec" })
export type ExecutionSpec = typeof ExecutionSpec.Type

const executionStatuses = ["starting", "running", "succeeded", "failed", "cancelled", "timed_out"] as const
export const ExecutionState = Schema.Literals(executionStatuses)
export type ExecutionState = typeof ExecutionState.Type

export const ExecutionErrorCode = Schema.Literals([
  "image_pull_failed",
  "image_not_found",
  "start_failed",
  "out_of_memory",
  "host_lost"
])
export type ExecutionErrorCode = typeof ExecutionErrorCode.Type

export const CleanupStatus = Schema.Literals(["pending", "confirmed", "attention_required"])
export type CleanupStatus = typeof CleanupStatus.Type

export const ExecutionStatus = Schema.Struct({
  state: ExecutionState,
  exitCode: Schema.NullOr(Schema.Int),
  errorCode: Schema.NullOr(ExecutionErrorCode),
  /** Why it did not succeed, for people. */
  error: Schema.NullOr(Schema.String),
  cleanupStatus: CleanupStatus,
  /** What the registry called the image that ran. */
  imageDigest: Schema.NullOr(Schema.String),
  startedAt: Schema.NullOr(Schema.String),
  finishedAt: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ExecutionStatus" })
export type ExecutionStatus = typeof ExecutionStatus.Type

export const Execution = defineKind({
  name: "Execution",
  summary: "A container that runs one command to its end.",
  scope: "project",
  placement: "host",
  spec: ExecutionSpec,
  status: ExecutionStatus,
  fields: Object.keys(ExecutionSpec.fields),
  immutable: Object.keys(ExecutionSpec.fields).filter((field) => field !== "cancelRequested"),
  internal: ["cancelRequested"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    WaitingForRoom: progress("Other executions have the memory of this host that it needs"),
    ImagePulling: progress("The image is fetched from its registry"),
    ContainerStarting: progress("The container is made and started"),
    ExecutionRunning: progress("The command runs"),
    ExecutionStopping: progress("The command was told to end"),
    EngineUnreachable: warning("The container engine does not answer"),
    ExecutionFailed: warning("It has ended and did not succeed"),
    ExecutionTimedOut: warning("It was ended because its time was over"),
    ExecutionCancelled: progress("It was cancelled"),
    CleanupFailing: warning(
      "Its container could not be removed although that was tried often; somebody has to look"
    ),
    CleaningUp: progress("It has ended; what it printed is being kept and the container removed")
  },
  // Longer than any of them may run: each state has a deadline of its own.
  deadlineSeconds: 31 * 86_400
})
