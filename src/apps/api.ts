/** Apps: what answers at the addresses of environments. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { AppPower, appSettings, HealthCheck, Idle } from "#schemas/app.ts"
import { inputOf } from "#schemas/input.ts"
import {
  environmentQuery,
  Id,
  idempotencyKey,
  projectParams,
  ServiceStatus,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { LogPage, logHeaders, logQuery, logStream } from "#src/container-logs/log-page.ts"
import { ExecRequest } from "./exec-request.ts"

export const AppView = Schema.Struct({
  id: Id,
  environment: Schema.String,
  status: ServiceStatus,
  power: AppPower,
  region: Schema.String,
  instances: Schema.Int,
  maxInstances: Schema.Int,
  requestsPerInstance: Schema.Int,
  cpus: Schema.Finite,
  memoryMb: Schema.Int,
  port: Schema.Int,
  healthCheck: HealthCheck,
  idle: Idle,
  deploymentId: Schema.NullOr(Id).annotate({
    description: "The deployment whose instances take the requests"
  }),
  chosenDeploymentId: Schema.NullOr(Id).annotate({
    description: "The deployment that is to take them; another one while it is started"
  }),
  lastFailure: Schema.NullOr(Schema.String).annotate({
    description: "Why the last version that was given up did not get healthy"
  }),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "App" })
export type AppView = typeof AppView.Type

export const AppInstance = Schema.Struct({
  id: Id,
  deploymentId: Id,
  state: Schema.Literals(["starting", "healthy", "draining", "stopping", "ended"]),
  startedAt: Schema.NullOr(Timestamp),
  healthyAt: Schema.NullOr(Timestamp),
  endedAt: Schema.NullOr(Timestamp),
  exitCode: Schema.NullOr(Schema.Int),
  exitReason: Schema.NullOr(Schema.String).annotate({ description: "Why it ended, for people" })
}).annotate({ identifier: "AppInstance" })
export const AppInstanceList = Schema.Array(AppInstance)

const { healthCheck, idle, ...plain } = inputOf(Schema.Struct(appSettings)).fields
export const AppPatch = Schema.Struct({
  ...plain,
  healthCheck: Schema.optionalKey(inputOf(HealthCheck)),
  idle: Schema.optionalKey(inputOf(Idle))
})

const base = "/v1/orgs/:orgId/projects/:projectId/app"
const params = projectParams
const query = environmentQuery
const target = { type: "environment" } as const
const tagged = { alsoAnswers: { headers: ["etag"] }, target }

export const Apps = group("apps", "What answers at the addresses of environments.").add(
  HttpApiEndpoint.get("get", base, { params, query, success: AppView, error: problems() }).annotateMerge(
    operation("apps.get", "read", "member", "Read the app of an environment; with an ETag", tagged)
  ),
  HttpApiEndpoint.patch("update", base, {
    params,
    query,
    payload: AppPatch,
    success: AppView,
    error: bodyProblems(402, 412)
  }).annotateMerge(
    operation(
      "apps.update",
      "write",
      "admin",
      "Change how many instances run, their size, their health check and when they sleep",
      {
        billing: true,
        conditional: true,
        ...tagged
      }
    )
  ),
  HttpApiEndpoint.get("instances", `${base}/instances`, {
    params,
    query,
    success: AppInstanceList,
    error: problems()
  }).annotateMerge(
    operation("apps.instances", "read", "member", "List instances of an app, also ended ones, newest first", {
      target
    })
  ),
  HttpApiEndpoint.get("logs", `${base}/logs`, {
    params,
    headers: logHeaders,
    query: {
      ...query,
      instance: Schema.optionalKey(Id.annotate({ description: "The newest one unless said otherwise" })),
      ...logQuery("the instance")
    },
    success: LogPage,
    error: problems()
  }).annotateMerge(
    operation("apps.logs", "read", "member", "Read the last of what an instance of an app printed", {
      alsoAnswers: logStream,
      target
    })
  ),
  HttpApiEndpoint.post("exec", `${base}/exec`, {
    params,
    query,
    payload: ExecRequest,
    success: Schema.String.annotate({
      description:
        "A line of JSON (`ExecLine`) for each piece that is printed, and a last one for how it ended"
    }).pipe(HttpApiSchema.asText({ contentType: "application/x-ndjson" })),
    error: bodyProblems(402)
  }).annotateMerge(
    operation(
      "apps.exec",
      "dangerous",
      "admin",
      "Run a program in an instance of the app; it is ended with the request",
      {
        sensitive: true,
        billing: true,
        target,
        worksWhileAnswering: true
      }
    )
  ),
  HttpApiEndpoint.post("restart", `${base}/restart`, {
    params,
    query,
    headers: idempotencyKey,
    success: AppView,
    error: problems(402)
  }).annotateMerge(
    operation("apps.restart", "write", "admin", "Start new instances of the same, and end the others", {
      billing: true,
      target
    })
  )
)
export type AppPatch = typeof AppPatch.Type
