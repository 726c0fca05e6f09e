/** Executions: containers that run one command to its end. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { cpuKinds } from "#schemas/catalog.ts"
import {
  CleanupStatus,
  Execution,
  ExecutionErrorCode,
  ExecutionResources,
  ExecutionRuntime,
  ExecutionState
} from "#schemas/execution.ts"
import { Id, idempotencyKey, page, pageQuery, projectParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"
import { inProject, resourceOperations } from "#src/api/definition/resource-group.ts"
import { logEntryFields, logHeaders, logQuery, logStream } from "#src/container-logs/log-page.ts"

export const ExecutionView = Schema.Struct({
  id: Id,
  status: ExecutionState,
  image: Schema.String,
  deploymentId: Schema.optionalKey(Id.annotate({ description: "Whose image it runs" })),
  imageDigest: Schema.NullOr(Schema.String).annotate({ description: "Of the image that was fetched" }),
  command: Schema.Array(Schema.String),
  region: Schema.String,
  resources: ExecutionResources,
  runtime: ExecutionRuntime,
  timeoutSeconds: Schema.Int,
  services: Schema.Boolean.annotate({
    description: "Whether it has the variables and reaches the servers of its environment"
  }),
  exitCode: Schema.NullOr(Schema.Int),
  errorCode: Schema.NullOr(ExecutionErrorCode),
  error: Schema.NullOr(Schema.String).annotate({ description: "Why it did not succeed, for people" }),
  cleanupStatus: CleanupStatus,
  createdAt: Timestamp,
  startedAt: Schema.NullOr(Timestamp),
  finishedAt: Schema.NullOr(Timestamp)
}).annotate({ identifier: "Execution" })
export const ExecutionList = Schema.Array(ExecutionView)

const Bounds = Schema.Struct({ min: Schema.Finite, max: Schema.Finite })
export const ExecutionAvailability = Schema.Struct({
  ready: Schema.Boolean,
  regions: Schema.Array(
    Schema.Struct({
      id: Schema.String,
      name: Schema.String,
      city: Schema.String,
      country: Schema.String,
      continent: Schema.String
    })
  ),
  architectures: Schema.Array(Schema.String),
  cpuKinds: Schema.Array(Schema.String),
  runtime: Schema.Struct({
    nestedContainers: Schema.Boolean.annotate({ description: "Whether containers may hold containers" })
  }),
  privateImageRegistries: Schema.Array(Schema.String).annotate({
    description: "Registries that may be given credentials; `*` stands for a part of a host name"
  }),
  limits: Schema.Struct({
    cpus: Bounds,
    memoryMb: Bounds,
    timeoutSeconds: Bounds,
    maxActiveExecutionsPerProject: Schema.NullOr(Schema.Int),
    maxEnvVariables: Schema.Int
  })
}).annotate({ identifier: "ExecutionAvailability" })

const ExecutionLogEntry = Schema.Struct(logEntryFields).annotate({ identifier: "ExecutionLogEntry" })
export const ExecutionLogPage = page(ExecutionLogEntry)

const part = Schema.String.check(Schema.isMaxLength(32_768))
const EnvKey = Schema.String.check(
  Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/u, {
    expected: "letters, digits and underscores that do not begin with a digit"
  })
)

export const ExecutionRequest = Schema.Struct({
  image: Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(512)).annotate({
      description: "Name of an image, with a tag or a digest; without a host it is one of Docker Hub"
    })
  ),
  deploymentId: Schema.optionalKey(
    Id.annotate({
      description:
        "Instead of `image`: that of this deployment, with the variables and servers of its app; takes the role admin"
    })
  ),
  command: Schema.NonEmptyArray(part)
    .check(Schema.isMaxLength(256))
    .annotate({ description: "Program and arguments, instead of what the image would run by itself" }),
  region: Schema.String.check(Schema.isMaxLength(64)),
  resources: Schema.optionalKey(
    Schema.Struct({
      cpuKind: Schema.optionalKey(Schema.Literals(cpuKinds)),
      cpus: Schema.optionalKey(Schema.Finite),
      memoryMb: Schema.optionalKey(Schema.Int)
    })
  ),
  runtime: Schema.optionalKey(Schema.Struct({ nestedContainers: Schema.optionalKey(Schema.Boolean) })),
  env: Schema.optionalKey(Schema.Record(EnvKey, part).annotate({ description: "Never shown again" })),
  imagePullCredentials: Schema.optionalKey(
    Schema.Struct({
      registry: Schema.String.check(Schema.isMaxLength(255)),
      username: Schema.NonEmptyString.check(Schema.isMaxLength(512)),
      password: Schema.NonEmptyString.check(Schema.isMaxLength(16_384))
    }).annotate({ description: "Never shown again" })
  ),
  timeoutSeconds: Schema.optionalKey(
    Schema.Int.annotate({ description: "From the start of the command; 3600 unless said otherwise" })
  ),
  services: Schema.optionalKey(
    Schema.Boolean.annotate({
      description:
        "Gives it the variables of the production environment, with the passwords of its servers, and a way to these; takes the role admin"
    })
  )
})
export type ExecutionRequest = typeof ExecutionRequest.Type

const executions = resourceOperations({
  group: "executions",
  kind: Execution,
  parent: inProject,
  segment: "executions",
  param: "executionId",
  view: ExecutionView
})
const { all, one, params, target } = executions

export const Executions = group("executions", "Containers that run one command to its end.").add(
  HttpApiEndpoint.get("list", all, {
    params: projectParams,
    query: {
      status: Schema.optionalKey(ExecutionState),
      limit: pageQuery.limit
    },
    success: ExecutionList,
    error: problems()
  }).annotateMerge(
    operation("executions.list", "read", "member", "List executions, newest first", {
      target: { type: "project" }
    })
  ),
  HttpApiEndpoint.get("availability", `${all}/availability`, {
    params: projectParams,
    success: ExecutionAvailability,
    error: problems()
  }).annotateMerge(
    operation("executions.availability", "read", "member", "What executions may ask for here", {
      target: { type: "project" }
    })
  ),
  executions.create({
    payload: ExecutionRequest,
    success: ExecutionView,
    status: 202,
    role: "member",
    summary: "Run a command in a container"
  }),
  HttpApiEndpoint.get("get", one, { params, success: ExecutionView, error: problems() }).annotateMerge(
    operation("executions.get", "read", "member", "Read an execution", { target })
  ),
  HttpApiEndpoint.post("cancel", `${one}/cancel`, {
    params,
    headers: idempotencyKey,
    success: ExecutionView.pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(
    operation("executions.cancel", "write", "member", "End an execution before its time", { target })
  ),
  HttpApiEndpoint.get("logs", `${one}/logs`, {
    params,
    headers: logHeaders,
    query: logQuery("the execution"),
    success: ExecutionLogPage,
    error: problems()
  }).annotateMerge(
    operation("executions.logs", "read", "member", "Read what an execution printed, from the start", {
      alsoAnswers: logStream,
      target
    })
  )
)
