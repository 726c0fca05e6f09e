/** AI gateways of an environment: their settings, keys and usage. Calls go to paths of their own. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { AiGateway, AiGatewayInput, AiModel } from "#schemas/ai-gateway.ts"
import { Condition } from "#schemas/condition.ts"
import { DisplayName } from "#schemas/display-text.ts"
import { Name } from "#schemas/names.ts"
import {
  Deleted,
  Id,
  idempotencyKey,
  page,
  pageQuery,
  ServiceStatus,
  Timestamp
} from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { inEnvironment, resourceOperations } from "#src/api/definition/resource-group.ts"

const sums = {
  requests: Schema.Int,
  inputTokens: Schema.Int,
  outputTokens: Schema.Int,
  spentUsd: Schema.Finite
}

const month = {
  month: Timestamp.annotate({ description: "Beginning of the month that the amounts are of, in UTC" }),
  ...sums,
  budgetUsd: Schema.Finite,
  reservedUsd: Schema.Finite.annotate({ description: "Held for calls under way" }),
  remainingUsd: Schema.Finite
}
export const MonthUsage = Schema.Struct(month).annotate({ identifier: "AiGatewayMonth" })

export const UsageView = Schema.Struct({
  ...month,
  models: Schema.Array(Schema.Struct({ model: Schema.String, ...sums })),
  keys: Schema.Array(
    Schema.Struct({
      keyId: Schema.NullOr(Id).annotate({ description: "null: apps, with the token of their environment" }),
      name: Schema.NullOr(Schema.String),
      ...sums
    })
  ),
  days: Schema.optionalKey(
    Schema.Array(
      Schema.Struct({ date: Schema.String.annotate({ description: "Such as 2026-11-22" }), ...sums })
    ).annotate({
      description: "Days (UTC) on which there were calls, with `granularity=day`"
    })
  )
}).annotate({ identifier: "AiGatewayUsage" })

export const AiGatewayView = Schema.Struct({
  id: Id,
  name: Schema.String,
  environment: Schema.String,
  status: ServiceStatus,
  allowedModels: Schema.Array(AiModel),
  monthlyBudgetUsd: Schema.Finite,
  timeoutMs: Schema.Int,
  maxRetries: Schema.Int,
  redactPrompts: Schema.Boolean,
  conditions: Schema.Array(Condition),
  usage: MonthUsage,
  createdAt: Timestamp,
  updatedAt: Timestamp
}).annotate({ identifier: "AiGateway" })

const handle = {
  id: Id,
  name: Schema.String,
  keyPrefix: Schema.String.annotate({ description: "First characters, to tell keys apart" })
}
export const GatewayKeyList = Schema.Array(
  Schema.Struct({
    ...handle,
    lastUsedAt: Schema.NullOr(Timestamp),
    revokedAt: Schema.NullOr(Timestamp),
    createdAt: Timestamp
  }).annotate({ identifier: "AiGatewayKey" })
)
export const NewGatewayKey = Schema.Struct({
  ...handle,
  secret: Schema.String.annotate({ description: "svcgw_ and 40 letters and digits, shown this once" })
}).annotate({ identifier: "NewAiGatewayKey" })

export const CallPage = page(
  Schema.Struct({
    id: Id,
    endedAt: Timestamp,
    model: Schema.String,
    upstream: Schema.NullOr(Schema.String).annotate({ description: "The operator's name for what answered" }),
    status: Schema.NullOr(Schema.Int).annotate({
      description: "HTTP status of the answer; 499: the caller went away; null: the process that made it died"
    }),
    inputTokens: Schema.Int,
    outputTokens: Schema.Int,
    estimated: Schema.Boolean.annotate({ description: "The upstream did not say what was used" }),
    costUsd: Schema.Finite,
    latencyMs: Schema.NullOr(Schema.Int),
    keyId: Schema.NullOr(Id).annotate({ description: "null: an app, with the token of its environment" })
  }).annotate({ identifier: "AiGatewayRequest" })
)

const gateways = resourceOperations({
  group: "aiGateways",
  kind: AiGateway,
  noun: "AI gateway",
  parent: inEnvironment,
  segment: "ai-gateways",
  param: "gatewayId",
  view: AiGatewayView
})
const { one, params, target } = gateways
const inputs = AiGatewayInput.fields

export const AiGateways = group(
  "aiGateways",
  "AI gateways of an environment: one OpenAI-compatible address, neutral models, a monthly budget."
).add(
  gateways.list({ summary: "List AI gateways by name, with the usage of this month" }),
  gateways.create({
    payload: Schema.Struct({ name: Name, ...inputs }),
    success: AiGatewayView,
    summary: "Create an AI gateway"
  }),
  gateways.get(),
  gateways.update({
    payload: Schema.Struct({
      ...inputs,
      allowedModels: Schema.optionalKey(inputs.allowedModels),
      monthlyBudgetUsd: Schema.optionalKey(inputs.monthlyBudgetUsd)
    })
  }),
  gateways.delete({ summary: "Delete an AI gateway; all of its keys are revoked" }),
  HttpApiEndpoint.get("models", `${one}/models`, {
    params,
    success: Schema.Array(AiModel),
    error: problems()
  }).annotateMerge(
    operation("aiGateways.models", "read", "member", "List the models that an AI gateway allows", { target })
  ),
  HttpApiEndpoint.get("listKeys", `${one}/keys`, {
    params,
    success: GatewayKeyList,
    error: problems()
  }).annotateMerge(
    operation("aiGateways.listKeys", "read", "admin", "List keys, revoked ones too, oldest first", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.post("createKey", `${one}/keys`, {
    params,
    headers: idempotencyKey,
    payload: Schema.Struct({ name: DisplayName }),
    success: NewGatewayKey.pipe(HttpApiSchema.status(201)),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("aiGateways.createKey", "write", "admin", "Create a key that calls an AI gateway", {
      sensitive: true,
      billing: true,
      target
    })
  ),
  HttpApiEndpoint.delete("revokeKey", `${one}/keys/:keyId`, {
    params: { ...params, keyId: Id },
    success: Deleted,
    error: problems()
  }).annotateMerge(
    operation("aiGateways.revokeKey", "destructive", "admin", "Revoke a key; its running calls end too", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.get("usage", `${one}/usage`, {
    params,
    query: {
      granularity: Schema.optionalKey(
        Schema.Literals(["month", "day"]).annotate({ description: "`day` adds each day's; default `month`" })
      )
    },
    success: UsageView,
    error: problems()
  }).annotateMerge(
    operation(
      "aiGateways.usage",
      "read",
      "member",
      "What an AI gateway has spent this month (UTC), and on what",
      {
        target
      }
    )
  ),
  HttpApiEndpoint.get("requests", `${one}/requests`, {
    params,
    query: pageQuery,
    success: CallPage,
    error: problems()
  }).annotateMerge(
    operation(
      "aiGateways.requests",
      "read",
      "member",
      "List the calls of the last seven days, newest first",
      {
        target
      }
    )
  )
)
