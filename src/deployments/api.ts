/** Deployments: versions of an environment's app. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { BuildPlan } from "#schemas/build-plan.ts"
import { Deployment, DeploymentErrorCode, DeploymentSource, DeploymentState } from "#schemas/deployment.ts"
import {
  environmentQuery,
  Id,
  idempotencyKey,
  pageQuery,
  projectParams,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inEnvironment, resourceOperations } from "#src/api/definition/resource-group.ts"
import { mostPieces, Piece } from "#src/builds/piece.ts"
import { LogPage, logHeaders, logQuery, logStream } from "#src/container-logs/log-page.ts"

export const DeploymentView = Schema.Struct({
  id: Id,
  environment: Schema.String,
  state: DeploymentState,
  active: Schema.Boolean.annotate({ description: "Its instances take the requests" }),
  source: DeploymentSource,
  command: Schema.NullOr(Schema.Array(Schema.String)),
  message: Schema.NullOr(Schema.String),
  region: Schema.String,
  errorCode: Schema.NullOr(DeploymentErrorCode),
  error: Schema.NullOr(Schema.String).annotate({ description: "Why it does not answer, for people" }),
  imageDigest: Schema.NullOr(Schema.String),
  imageKept: Schema.Boolean.annotate({ description: "It can be chosen again, once it was ready" }),
  createdAt: Timestamp,
  readyAt: Schema.NullOr(Timestamp),
  finishedAt: Schema.NullOr(Timestamp)
}).annotate({ identifier: "Deployment" })
export type DeploymentView = typeof DeploymentView.Type
export const DeploymentList = Schema.Array(DeploymentView)

const part = Schema.String.check(Schema.isMaxLength(32_768))

/** SHA-256 in hexadecimal. */
const Digest = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{64}$/, { expected: "a SHA-256 digest in hexadecimal" })
)

const Bytes = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

export const UploadView = Schema.Struct({
  digest: Digest,
  received: Schema.Int.annotate({ description: "Bytes of it that are here, from its beginning on" }),
  missing: Schema.Int.annotate({ description: "Bytes of it that are still to be sent" }),
  until: Schema.Int.annotate({
    description:
      "The part that begins at `received` and is to be sent next ends here: what follows is here already"
  }),
  entries: Schema.NullOr(Schema.Int).annotate({
    description: "Files, folders and links; null: it is not here as a whole"
  }),
  plan: Schema.NullOr(BuildPlan).annotate({ description: "How a deployment of it is built" })
}).annotate({ identifier: "Upload" })

export const UploadPieces = Schema.Struct({
  pieces: Schema.NonEmptyArray(Piece).check(Schema.isMaxLength(mostPieces)).annotate({
    description:
      "All bytes of the archive in their order, cut before the header of each entry (each block of 512 bytes with `ustar` at its byte 257)"
  })
}).annotate({ identifier: "UploadPieces" })

export const GitRequest = Schema.Struct({
  repo: Schema.optionalKey(
    Schema.String.check(
      Schema.isMaxLength(2_000),
      Schema.isPattern(/^(?:[\w.-]+\/[\w.-]+|https:\/\/[^\s@]+)$/u, {
        expected: "`<owner>/<name>`, or an https URL without a credential"
      })
    ).annotate({
      description:
        "Owner and name of a repository that a git connection opens, or the whole URL of a public one; left out: the project's `git.repo`"
    })
  ),
  ref: Schema.optionalKey(
    Schema.NonEmptyString.check(Schema.isMaxLength(255)).annotate({
      description: "Branch, tag or commit; left out: the project's `git.ref`, or the default branch"
    })
  )
}).annotate({ identifier: "GitRequest" })
export type GitRequest = typeof GitRequest.Type

export const DeploymentRequest = Schema.Struct({
  image: Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(512)).annotate({
      description: "Name of an image, with a digest or a tag; a tag is resolved once",
      examples: [
        "registry.example.com/shop/web@sha256:0000000000000000000000000000000000000000000000000000000000000000"
      ]
    })
  ),
  upload: Schema.optionalKey(
    Digest.annotate({ description: "In place of an image: digest of source that was uploaded" })
  ),
  git: Schema.optionalKey(
    GitRequest.annotate({ description: "In place of an image: a commit of a repository, which is built" })
  ),
  command: Schema.optionalKey(
    Schema.NonEmptyArray(part)
      .check(Schema.isMaxLength(256))
      .annotate({ description: "Program and arguments; left out: those that the image names" })
  ),
  region: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(64))),
  message: Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(1_000)).annotate({ description: "What is new, for people" })
  ),
  imagePullCredentials: Schema.optionalKey(
    Schema.Struct({
      registry: Schema.String.check(Schema.isMaxLength(255)),
      username: Schema.NonEmptyString.check(Schema.isMaxLength(512)),
      password: Schema.NonEmptyString.check(Schema.isMaxLength(16_384))
    }).annotate({ description: "Never shown again" })
  )
}).annotate({ identifier: "DeploymentRequest" })
export type DeploymentRequest = typeof DeploymentRequest.Type

const deployments = resourceOperations({
  group: "deployments",
  kind: Deployment,
  parent: inEnvironment,
  segment: "deployments",
  param: "deploymentId",
  view: DeploymentView
})
const { all, one, params, target } = deployments

export const Deployments = group("deployments", "Versions of the app of an environment.").add(
  HttpApiEndpoint.get("list", all, {
    params: projectParams,
    query: { ...environmentQuery, limit: pageQuery.limit },
    success: DeploymentList,
    error: problems()
  }).annotateMerge(
    operation("deployments.list", "read", "member", "List deployments, newest first", {
      target: { type: "project" }
    })
  ),
  deployments.create({
    payload: DeploymentRequest,
    success: DeploymentView,
    status: 202,
    // Its image is given every variable of the environment.
    role: "admin",
    summary: "Bring a new version of the app to an environment"
  }),
  HttpApiEndpoint.put("upload", "/v1/orgs/:orgId/projects/:projectId/uploads/:digest", {
    params: { ...projectParams, digest: Digest },
    query: {
      offset: Schema.optionalKey(
        Bytes.annotate({ description: "Bytes of the archive that come before this part" })
      ),
      size: Schema.optionalKey(
        Bytes.annotate({ description: "Bytes of the archive; left out: all of it is sent at once" })
      )
    },
    success: UploadView,
    error: problems(402, 413, 415)
  }).annotateMerge(
    operation(
      "deployments.upload",
      "write",
      "member",
      "Upload source to build a deployment of, as a tar archive; `digest` is its SHA-256",
      { billing: true, target: { type: "project" }, streams: "application/x-tar" }
    )
  ),
  HttpApiEndpoint.put("comparePieces", "/v1/orgs/:orgId/projects/:projectId/uploads/:digest/pieces", {
    params: { ...projectParams, digest: Digest },
    payload: UploadPieces,
    success: UploadView,
    error: problems(402, 413)
  }).annotateMerge(
    operation(
      "deployments.comparePieces",
      "write",
      "member",
      "Say what an archive consists of before it is uploaded: pieces that the organization has sent before are not sent again",
      { billing: true, target: { type: "project" }, longestBody: 4 * 1024 * 1024 }
    )
  ),
  HttpApiEndpoint.get("get", one, { params, success: DeploymentView, error: problems() }).annotateMerge(
    operation("deployments.get", "read", "member", "Read a deployment", { target })
  ),
  HttpApiEndpoint.get("logs", `${one}/logs`, {
    params,
    headers: logHeaders,
    query: logQuery("the deployment"),
    success: LogPage,
    error: problems()
  }).annotateMerge(
    operation("deployments.logs", "read", "member", "Read how a deployment went", {
      alsoAnswers: logStream,
      target
    })
  ),
  HttpApiEndpoint.post("cancel", `${one}/cancel`, {
    params,
    headers: idempotencyKey,
    success: DeploymentView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation("deployments.cancel", "write", "member", "End a deployment that takes no requests yet", {
      target
    })
  ),
  HttpApiEndpoint.post("promote", `${one}/promote`, {
    params,
    headers: idempotencyKey,
    success: DeploymentView.pipe(HttpApiSchema.status(202)),
    error: problems(402)
  }).annotateMerge(
    operation(
      "deployments.promote",
      "write",
      "admin",
      "Have the requests go to a deployment that was ready before",
      { billing: true, target }
    )
  ),
  // Not below `deployments`, where it would be the id of one.
  HttpApiEndpoint.post("rollback", "/v1/orgs/:orgId/projects/:projectId/app/rollback", {
    params: projectParams,
    query: environmentQuery,
    headers: idempotencyKey,
    success: DeploymentView.pipe(HttpApiSchema.status(202)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation(
      "deployments.rollback",
      "write",
      "admin",
      "Have the requests go to the ready deployment before the one that answers",
      { billing: true, target: { type: "environment" } }
    )
  )
)
