/** `Deployment`: a version of an app on its way to answer requests. What it is made of cannot be changed. */
import * as Schema from "effect/Schema"
import { BuildPlan } from "./build-plan.ts"
import { Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"

export const ImageSource = Schema.Struct({
  kind: Schema.Literal("image"),
  /** As it was asked for. */
  image: Schema.String
}).annotate({ identifier: "ImageSource" })
/** A folder that was uploaded, and how it is built. */
export const UploadSource = Schema.Struct({
  kind: Schema.Literal("upload"),
  /** SHA-256 of what was sent, in hexadecimal. */
  digest: Schema.String,
  plan: BuildPlan
}).annotate({ identifier: "UploadSource" })
/** A commit of a repository. How it is built is found out when its files are there. */
export const CommitSource = Schema.Struct({
  kind: Schema.Literal("git"),
  url: Schema.String,
  /** As it was asked for. */
  ref: Schema.String,
  commit: Schema.String,
  /** Id of the connection that opens the repository; absent: everybody may read it. */
  connection: Schema.optionalKey(Schema.String),
  /** It was written by somebody of another repository: what it names is not fetched with the connection's credential. */
  fork: Schema.optionalKey(Schema.Boolean)
}).annotate({ identifier: "CommitSource" })
export type CommitSource = typeof CommitSource.Type
export const DeploymentSource = Schema.Union([ImageSource, UploadSource, CommitSource]).annotate({
  identifier: "DeploymentSource"
})

/** Credentials of a registry are sealed under the field `imagePullCredentials`, and nowhere else. */
export const DeploymentSpec = Schema.Struct({
  region: Region,
  source: DeploymentSource,
  /** Program and arguments; absent: those that the image names. */
  command: Schema.optionalKey(Schema.Array(Schema.String)),
  message: Schema.optionalKey(Schema.String),
  cancelRequested: withDefault(Schema.Boolean, false)
}).annotate({ identifier: "DeploymentSpec" })
export type DeploymentSpec = typeof DeploymentSpec.Type

export const deploymentStates = [
  "queued",
  "fetching",
  "building",
  "starting",
  "ready",
  "failed",
  "cancelled",
  "superseded"
] as const
export const DeploymentState = Schema.Literals(deploymentStates).annotate({ identifier: "DeploymentState" })
export type DeploymentState = typeof DeploymentState.Type

export const DeploymentErrorCode = Schema.Literals([
  "image_pull_failed",
  "image_not_found",
  "build_failed",
  "build_timed_out",
  "build_unavailable",
  "source_unavailable",
  "never_healthy",
  "timed_out"
])
export type DeploymentErrorCode = typeof DeploymentErrorCode.Type

export const DeploymentStatus = Schema.Struct({
  state: DeploymentState,
  errorCode: Schema.NullOr(DeploymentErrorCode),
  /** Why it is not what answers, for people. */
  error: Schema.NullOr(Schema.String),
  imageDigest: Schema.NullOr(Schema.String)
}).annotate({ identifier: "DeploymentStatus" })
export type DeploymentStatus = typeof DeploymentStatus.Type

export const Deployment = defineKind({
  name: "Deployment",
  summary: "A version of an app on its way to answer requests.",
  scope: "environment",
  placement: "host",
  spec: DeploymentSpec,
  status: DeploymentStatus,
  fields: Object.keys(DeploymentSpec.fields),
  immutable: Object.keys(DeploymentSpec.fields).filter((field) => field !== "cancelRequested"),
  internal: ["cancelRequested"],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    DeploymentQueued: progress("It waits for its turn"),
    ImagePulling: progress("Its image is fetched from the registry"),
    Building: progress("Its image is built from its source"),
    InstancesStarting: progress("Its instances are started and have to get healthy"),
    EngineUnreachable: warning("The container engine does not answer"),
    DeploymentFailed: warning("It has failed; what answered before goes on answering"),
    DeploymentCancelled: progress("It was cancelled"),
    DeploymentSuperseded: progress("A newer one came before it was ready")
  },
  // Longer than the deadlines of its states together.
  deadlineSeconds: 2 * 86_400
})
