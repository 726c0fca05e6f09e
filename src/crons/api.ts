/** Cron jobs: calls of an environment's app by a schedule, and every run of them. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { ConcurrencyPolicy, Cron, CronInput, CronRetry, CronSpec, CronTarget } from "#schemas/cron.ts"
import { checkedInputOf } from "#schemas/input.ts"
import { Name } from "#schemas/names.ts"
import { Id, idempotencyKey, page, pageQuery, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { problems } from "#src/api/definition/problem.ts"
import { inEnvironment, resourceOperations } from "#src/api/definition/resource-group.ts"
import { Attempt, RunStatus } from "./run.ts"

export const CronView = Schema.Struct({
  id: Id,
  name: Schema.String,
  environment: Schema.String,
  schedule: Schema.String,
  timezone: Schema.String,
  enabled: Schema.Boolean,
  catchUp: Schema.Literal(false).annotate({ description: "Times that were missed are not made up for" }),
  target: Schema.toType(CronTarget).annotate({ identifier: "CronTarget" }),
  retry: Schema.toType(CronRetry),
  concurrencyPolicy: ConcurrencyPolicy,
  timeoutSeconds: Schema.Int,
  lastRunAt: Schema.NullOr(Timestamp),
  nextRunAt: Schema.NullOr(Timestamp).annotate({ description: "null for a job that is switched off" }),
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "Cron" })
export const CronList = Schema.Array(CronView)

export const CronRunView = Schema.Struct({
  id: Id.annotate({ description: "The `id` of its invocations, the same for all attempts" }),
  cronId: Id,
  trigger: Schema.Literals(["schedule", "manual"]),
  status: RunStatus,
  scheduledAt: Timestamp,
  startedAt: Schema.NullOr(Timestamp),
  finishedAt: Schema.NullOr(Timestamp),
  attempts: Schema.Array(Attempt).annotate({ description: "Those that ended" }),
  reason: Schema.NullOr(Schema.String).annotate({
    description: "Why it failed, was skipped or was replaced; null otherwise"
  })
}).annotate({ identifier: "CronRun" })
export const CronRunPage = page(CronRunView)

const input = checkedInputOf(CronSpec).fields

const crons = resourceOperations({
  group: "crons",
  kind: Cron,
  noun: "cron job",
  parent: inEnvironment,
  segment: "crons",
  param: "cronId",
  view: CronView
})
const { one, params, target } = crons

export const Crons = group(
  "crons",
  "Calls of an environment's app by a schedule, and every run of them."
).add(
  crons.list(),
  crons.create({ payload: Schema.Struct({ name: Name, ...input }), success: CronView }),
  crons.get({ summary: "Read a cron job, with its next run" }),
  crons.update({
    payload: Schema.Struct({
      ...input,
      schedule: Schema.optionalKey(input.schedule),
      target: Schema.optionalKey(input.target),
      // Of what is not given the stored value stays, also where the two contradict each other until they are merged.
      retry: CronInput.fields.retry
    })
  }),
  crons.delete({ summary: "Delete a cron job and its runs" }),
  HttpApiEndpoint.post("trigger", `${one}/trigger`, {
    params,
    headers: idempotencyKey,
    success: CronRunView.pipe(HttpApiSchema.status(202)),
    error: problems(402)
  }).annotateMerge(
    operation("crons.trigger", "write", "admin", "Run a cron job now, whether it is switched on or not", {
      billing: true,
      target
    })
  ),
  HttpApiEndpoint.get("listRuns", `${one}/runs`, {
    params,
    query: pageQuery,
    success: CronRunPage,
    error: problems()
  }).annotateMerge(
    operation("crons.listRuns", "read", "member", "List runs of a cron job, newest first", { target })
  ),
  HttpApiEndpoint.get("getRun", `${one}/runs/:runId`, {
    params: { ...params, runId: Id },
    success: CronRunView,
    error: problems()
  }).annotateMerge(operation("crons.getRun", "read", "member", "Read a run of a cron job", { target }))
)
