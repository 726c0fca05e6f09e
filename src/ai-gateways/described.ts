/**
 * The calls of gateways as the API document describes them. They are routes and no operations of the API, since bodies,
 * errors and credentials are those of OpenAI's API there.
 */
import * as Schema from "effect/Schema"
import type { JsonObject } from "#src/api/definition/json-schema.ts"
import { ChatRequest } from "./runtime/chat-request.ts"

const errors: Readonly<Record<number, string>> = {
  400: "The request is not valid, or the model's provider does not take it",
  401: "The credential does not hold",
  402: "The month's budget does not allow the call, or billing is not active",
  404: "The credential reaches no gateway of this name, or the gateway does not allow the model",
  413: "The body is longer than 1 MiB",
  415: "The body has a Content-Encoding",
  429: "A limit of the gateway, of the key or of the provider",
  500: "A fault of the service",
  502: "The model's provider failed",
  503: "No provider is there for the model, or the service is away",
  504: "The model's provider did not begin, or go on, in time"
}

const ErrorBody = Schema.Struct({
  error: Schema.Struct({
    message: Schema.String,
    type: Schema.String,
    param: Schema.NullOr(Schema.String),
    code: Schema.String
  })
})

const Usage = Schema.Struct({
  prompt_tokens: Schema.Int,
  completion_tokens: Schema.Int,
  total_tokens: Schema.Int,
  prompt_tokens_details: Schema.Struct({ cached_tokens: Schema.Int })
})

const ToolCall = Schema.Struct({
  id: Schema.String,
  type: Schema.Literal("function"),
  function: Schema.Struct({ name: Schema.String, arguments: Schema.String })
})

const Completion = Schema.Struct({
  id: Schema.String.annotate({ description: "The same in every event of a streamed answer" }),
  object: Schema.Literal("chat.completion"),
  created: Schema.Int.annotate({ description: "Unix time in seconds" }),
  model: Schema.String.annotate({ description: "The neutral model's name" }),
  choices: Schema.Array(
    Schema.Struct({
      index: Schema.Int,
      message: Schema.Struct({
        role: Schema.Literal("assistant"),
        content: Schema.NullOr(Schema.String),
        refusal: Schema.NullOr(Schema.String),
        reasoning_content: Schema.optionalKey(Schema.String),
        tool_calls: Schema.optionalKey(Schema.Array(ToolCall))
      }),
      logprobs: Schema.Null,
      finish_reason: Schema.Literals(["stop", "length", "tool_calls", "content_filter"])
    })
  ),
  usage: Usage
})

const Models = Schema.Struct({
  object: Schema.Literal("list"),
  data: Schema.Array(
    Schema.Struct({
      id: Schema.String,
      object: Schema.Literal("model"),
      created: Schema.Int,
      owned_by: Schema.String
    })
  )
})

const jsonSchema = (schema: Schema.Constraint): JsonObject =>
  Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" }).schema
const json = (schema: JsonObject) => ({ "application/json": { schema } })
const headers = (...names: ReadonlyArray<string>) =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

const failing = (statuses: ReadonlyArray<number>) =>
  Object.fromEntries(
    statuses.map((status) => [
      status,
      {
        description: errors[status] ?? "",
        headers: headers("X-Request-Id", ...(status === 429 || status === 503 ? ["Retry-After"] : [])),
        content: json({ $ref: "#/components/schemas/AiGatewayError" })
      }
    ])
  )

const called = {
  tags: ["aiGateways"],
  "x-sensitive": false,
  "x-role": null,
  "x-credentials": ["gatewayKey"],
  security: [{ gatewayKey: [] }],
  parameters: [
    {
      name: "gatewayName",
      in: "path",
      required: true,
      description: "The gateway's name, in the environment of the credential",
      schema: { type: "string" }
    }
  ]
}

export const described = (): {
  readonly paths: JsonObject
  readonly schemas: JsonObject
  readonly securitySchemes: JsonObject
} => ({
  paths: {
    "/v1/runtime/ai/{gatewayName}/chat/completions": {
      post: {
        ...called,
        operationId: "aiGateways.runtimeChatCompletions",
        summary: "Have a model complete a chat, as OpenAI's API does",
        description:
          "Takes a key of the gateway, or the token of an app. The organization's billing must be active. The answer is one " +
          "JSON document, or events with chunks of it where `stream` is true, and `[DONE]` at the end.",
        "x-risk": "write",
        "x-billing": true,
        requestBody: { required: true, content: json(jsonSchema(ChatRequest)) },
        responses: {
          200: {
            description: "What the model answers",
            headers: headers("X-Request-Id"),
            content: { ...json(jsonSchema(Completion)), "text/event-stream": { schema: { type: "string" } } }
          },
          ...failing(Object.keys(errors).map(Number))
        }
      }
    },
    "/v1/runtime/ai/{gatewayName}/models": {
      get: {
        ...called,
        operationId: "aiGateways.runtimeModels",
        summary: "List the neutral models that the gateway allows, as OpenAI's API does",
        description: "Takes a key of the gateway, or the token of an app.",
        "x-risk": "read",
        "x-billing": false,
        responses: {
          200: {
            description: "The models",
            headers: headers("X-Request-Id"),
            content: json(jsonSchema(Models))
          },
          ...failing([401, 404, 500, 503])
        }
      }
    }
  },
  schemas: { AiGatewayError: jsonSchema(ErrorBody) },
  securitySchemes: {
    gatewayKey: {
      type: "http",
      scheme: "bearer",
      description: "Key of a gateway (svcgw_...), or token of the apps of an environment (svcapp_...)"
    }
  }
})
