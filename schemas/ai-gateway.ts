/** `AiGateway`: one OpenAI-compatible address of an environment, with the models it allows and a monthly budget. */
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { listSection, usualEnvironment } from "./manifest-mapping.ts"

/** Models that name no provider: which real one answers is the operator's choice. */
export const AiModel = Schema.Literals(["svc/fast", "svc/balanced", "svc/reasoning"]).annotate({
  identifier: "AiModel",
  description: "A model by what it is good at; the operator maps it to real ones"
})
export type AiModel = typeof AiModel.Type

export const AllowedModels = Schema.Array(AiModel).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(AiModel.literals.length),
  Schema.isUnique()
)

/** Amounts are counted in billionths of a dollar, and this many of them are still exact as a JavaScript number. */
export const MonthlyBudgetUsd = Schema.Finite.check(
  Schema.isBetween({ minimum: 0, maximum: 1_000_000 }),
  Schema.makeFilter((usd: number) =>
    Number(usd.toFixed(6)) === usd ? undefined : "has more than six digits after the point"
  )
)

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

export const AiGatewaySpec = Schema.Struct({
  allowedModels: AllowedModels.annotateKey({ description: "The models that calls may name, each once" }),
  monthlyBudgetUsd: MonthlyBudgetUsd.annotateKey({
    description: "US dollars that calls may cost in a month (UTC); 0 refuses every call that costs something"
  }),
  timeoutMs: withDefault(
    integer(1_000, 600_000),
    60_000,
    "How long a call may wait for the first part of its answer, with all retries"
  ),
  maxRetries: withDefault(integer(0, 10), 2, "Tries after the first one, before the answer has begun"),
  redactPrompts: withDefault(
    Schema.Boolean,
    true,
    "Keeps prompts and answers out of logs, traces, errors and tables"
  )
}).annotate({ identifier: "AiGatewaySpec" })
export type AiGatewaySpec = typeof AiGatewaySpec.Type
/** What users may give of a gateway, besides its name. */
export const AiGatewayInput = inputOf(AiGatewaySpec)

export const AiGatewayStatus = Schema.Struct({
  /** Allowed models that an upstream answers for. */
  availableModels: Schema.Array(AiModel)
}).annotate({ identifier: "AiGatewayStatus" })
export type AiGatewayStatus = typeof AiGatewayStatus.Type

export const AiGateway = defineKind({
  name: "AiGateway",
  summary: "An OpenAI-compatible address with neutral models and a monthly budget that holds.",
  scope: "environment",
  spec: AiGatewaySpec,
  status: AiGatewayStatus,
  fields: Object.keys(AiGatewaySpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "owner",
  reasons: {
    ModelUnavailable: warning("The operator has named no upstream for a model that it allows"),
    UpstreamFailing: warning("An upstream of a model that it allows fails, and is left alone for a while")
  },
  manifest: listSection("aiGateways", "OpenAI-compatible gateways with a monthly budget", {
    environment: usualEnvironment,
    ...AiGatewayInput.fields
  }),
  deadlineSeconds: 60
})
