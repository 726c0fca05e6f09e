/** How everything is doing: reconcile status, history, and what an operator can do about it. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Phase } from "#schemas/condition.ts"
import { lineOf } from "#schemas/display-text.ts"
import { EnvironmentSlug, Uid } from "#schemas/names.ts"
import {
  defaultPageSize,
  Id,
  idempotencyKey,
  orgParams,
  page,
  pageQuery,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { ResourceChange, ResourceSummary, summary } from "#src/api/definition/resource-summary.ts"

export const ResourceDetail = Schema.Struct({
  ...summary,
  spec: Schema.Json.annotate({ description: "What was asked for; secret values are masked" }),
  status: Schema.Json.annotate({ description: "What was seen at the last look; null before the first" }),
  parentUid: Schema.NullOr(Id)
}).annotate({ identifier: "Resource" })

const ResourceEvent = Schema.Struct({
  id: Schema.String,
  type: Schema.String,
  reason: Schema.String,
  message: Schema.String,
  actor: Schema.NullOr(Schema.String),
  generation: Schema.NullOr(Schema.Int),
  count: Schema.Int.annotate({ description: "How often it happened in a row" }),
  firstAt: Timestamp,
  lastAt: Timestamp
}).annotate({ identifier: "ResourceEvent" })

export const ResourcePage = page(ResourceSummary)
export const EventPage = page(ResourceEvent)

const Accepted = Schema.Struct({ ok: Schema.Literal(true) }).pipe(HttpApiSchema.status(202))
const PauseRequest = Schema.Struct({
  reason: lineOf(500),
  until: Schema.optionalKey(
    Schema.String.annotate({ format: "date-time", description: "When it ends by itself" }).pipe(
      Schema.decodeTo(Schema.DateTimeUtcFromString)
    )
  )
}).annotate({ identifier: "PauseRequest" })
/** What else than one resource can be paused. */
const PauseScope = Schema.Literals(["organization", "project", "kind"])

const base = "/v1/orgs/:orgId/resources"
const one = `${base}/:uid` as const
const params = { ...orgParams, uid: Uid }
const target = { type: "resource", param: "uid" } as const

export const Resources = group(
  "resources",
  "How everything is doing: reconcile status, history, and what an operator can do about it."
).add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    query: {
      ...pageQuery,
      kind: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(64))),
      project: Schema.optionalKey(
        Schema.String.check(Schema.isMaxLength(64)).annotate({ description: "Id or slug" })
      ),
      environment: Schema.optionalKey(EnvironmentSlug),
      phase: Schema.optionalKey(Phase),
      ready: Schema.optionalKey(Schema.Boolean)
    },
    success: ResourcePage,
    error: problems()
  }).annotateMerge(
    operation(
      "resources.list",
      "read",
      "member",
      `List resources, oldest first, ${defaultPageSize} at a time`
    )
  ),
  HttpApiEndpoint.get("watch", `${base}/watch`, {
    params: orgParams,
    headers: {
      "last-event-id": Schema.optionalKey(
        Schema.String.check(Schema.isMaxLength(64)).annotate({ description: "Goes on after this event" })
      )
    },
    success: HttpApiSchema.StreamSse({ data: ResourceChange }),
    error: problems()
  }).annotateMerge(
    operation(
      "resources.watch",
      "read",
      "member",
      "Follow changes: everything there is, a comment that says so, then each change (server-sent events)"
    )
  ),
  HttpApiEndpoint.get("get", one, {
    params,
    success: HttpApiSchema.WithHeaders(ResourceDetail, { etag: Schema.String }),
    error: problems()
  }).annotateMerge(
    operation("resources.get", "read", "member", "Read a resource with specification and status", { target })
  ),
  HttpApiEndpoint.get("events", `${one}/events`, {
    params,
    query: pageQuery,
    success: EventPage,
    error: problems()
  }).annotateMerge(
    operation("resources.events", "read", "member", "Read the history of a resource, newest first", {
      target
    })
  ),
  HttpApiEndpoint.post("retry", `${one}/retry`, {
    params,
    headers: idempotencyKey,
    success: Schema.Struct({
      token: Schema.String.annotate({
        description: "Shows up as `handledRetry` once a look that began later has ended"
      })
    }).pipe(HttpApiSchema.status(202)),
    error: problems()
  }).annotateMerge(operation("resources.retry", "write", "admin", "Look at a resource now", { target })),
  HttpApiEndpoint.post("pause", `${one}/pause`, {
    params,
    headers: idempotencyKey,
    payload: PauseRequest,
    success: Accepted,
    error: bodyProblems()
  }).annotateMerge(
    operation("resources.pause", "write", "admin", "Observe a resource without touching it", { target })
  ),
  HttpApiEndpoint.post("resume", `${one}/resume`, {
    params,
    headers: idempotencyKey,
    success: Accepted,
    error: problems()
  }).annotateMerge(
    operation("resources.resume", "write", "admin", "End the pause of a resource", { target })
  ),
  HttpApiEndpoint.put("protect", `${one}/protection`, {
    params,
    payload: Schema.Struct({ protected: Schema.Boolean }),
    success: Schema.Struct({ protected: Schema.Boolean }),
    error: bodyProblems(412)
  }).annotateMerge(
    operation("resources.protect", "write", "admin", "Turn protection against deletion on or off", {
      conditional: true,
      target
    })
  ),
  HttpApiEndpoint.post("abandon", `${one}/abandon`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({
      confirm: Schema.String.annotate({ description: "Name of the resource, repeated" }),
      reason: lineOf(500)
    }),
    success: Schema.Struct({
      leftBehind: Schema.Json.annotate({ description: "The last status: what may still exist out there" })
    }),
    error: bodyProblems()
  }).annotateMerge(
    operation(
      "resources.abandon",
      "dangerous",
      "admin",
      "Forget a resource without removing the real thing",
      {
        sensitive: true,
        target
      }
    )
  ),
  HttpApiEndpoint.post("pauseMany", `/v1/orgs/:orgId/pauses`, {
    params: orgParams,
    headers: idempotencyKey,
    payload: Schema.Struct({
      ...PauseRequest.fields,
      scope: PauseScope,
      target: Schema.optionalKey(Schema.String)
    }),
    success: Accepted,
    error: bodyProblems()
  }).annotateMerge(
    operation("resources.pauseMany", "write", "admin", "Pause a project, a kind or the whole organization")
  ),
  HttpApiEndpoint.delete("resumeMany", `/v1/orgs/:orgId/pauses`, {
    params: orgParams,
    query: { scope: PauseScope, target: Schema.optionalKey(Schema.String) },
    success: Accepted,
    error: problems()
  }).annotateMerge(
    operation(
      "resources.resumeMany",
      "write",
      "admin",
      "End the pause of a project, a kind or the organization"
    )
  )
)
