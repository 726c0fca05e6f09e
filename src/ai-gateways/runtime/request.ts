/**
 * A request for a chat completion, as OpenAI's API reference defines it (`POST /chat/completions`). What stands here is
 * passed on; what does not is refused by its name, so that nobody believes that it had an effect.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { tooDeepAt } from "#schemas/json-depth.ts"
import { faultsOf } from "#src/api/failure.ts"
import { type CallFailed, invalidRequest } from "./failure.ts"

const maybe = <S extends Schema.Constraint>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))
const between = (minimum: number, maximum: number) =>
  Schema.Finite.check(Schema.isBetween({ minimum, maximum }))
const count = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const FunctionName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9_-]{1,64}$/, { expected: "a name of 1-64 letters, digits, - and _" })
)
const JsonObject = Schema.Record(Schema.String, Schema.Unknown)

const TextPart = Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })
const ImagePart = Schema.Struct({
  type: Schema.Literal("image_url"),
  image_url: Schema.Struct({
    url: Schema.String.check(
      Schema.isPattern(
        /^(https:\/\/[^\s]{1,8192}|data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2})$/,
        {
          expected: "an https URL, or a data URL of a PNG, JPEG, GIF or WebP image in base64"
        }
      )
    ),
    detail: maybe(Schema.Literals(["auto", "low", "high"]))
  })
})
const TextContent = Schema.Union([Schema.String, Schema.Array(TextPart)])
const ToolCall = Schema.Struct({
  id: Schema.String,
  type: Schema.Literal("function"),
  function: Schema.Struct({ name: FunctionName, arguments: Schema.String })
})

const Instructions = <const Role extends string>(role: Role) =>
  Schema.Struct({ role: Schema.Literal(role), content: TextContent, name: maybe(Schema.String) })

// One role each: a fault is then told of the message that was meant.
const Message = Schema.Union([
  Instructions("system"),
  Instructions("developer"),
  Schema.Struct({
    role: Schema.Literal("user"),
    content: Schema.Union([Schema.String, Schema.Array(Schema.Union([TextPart, ImagePart]))]),
    name: maybe(Schema.String)
  }),
  Schema.Struct({
    role: Schema.Literal("assistant"),
    content: maybe(TextContent),
    refusal: maybe(Schema.String),
    tool_calls: maybe(Schema.Array(ToolCall).check(Schema.isMaxLength(128))),
    name: maybe(Schema.String)
  }),
  Schema.Struct({ role: Schema.Literal("tool"), content: TextContent, tool_call_id: Schema.String })
])
export type Message = typeof Message.Type

const Tool = Schema.Struct({
  type: Schema.Literal("function"),
  function: Schema.Struct({
    name: FunctionName,
    description: maybe(Schema.String),
    parameters: maybe(JsonObject),
    strict: maybe(Schema.Boolean)
  })
})

const ResponseFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  Schema.Struct({
    type: Schema.Literal("json_schema"),
    json_schema: Schema.Struct({
      name: FunctionName,
      description: maybe(Schema.String),
      schema: maybe(JsonObject),
      strict: maybe(Schema.Boolean)
    })
  })
])

const ChatRequest = Schema.Struct({
  model: Schema.String,
  messages: Schema.Array(Message).check(Schema.isMinLength(1), Schema.isMaxLength(2_048)),
  stream: maybe(Schema.Boolean),
  stream_options: maybe(Schema.Struct({ include_usage: maybe(Schema.Boolean) })),
  max_tokens: maybe(count(1, 1_000_000)),
  max_completion_tokens: maybe(count(1, 1_000_000)),
  temperature: maybe(between(0, 2)),
  top_p: maybe(between(0, 1)),
  presence_penalty: maybe(between(-2, 2)),
  frequency_penalty: maybe(between(-2, 2)),
  n: maybe(Schema.Literal(1)),
  seed: maybe(Schema.Int),
  stop: maybe(
    Schema.Union([
      Schema.String,
      Schema.Array(Schema.String).check(Schema.isMinLength(1), Schema.isMaxLength(4))
    ])
  ),
  tools: maybe(Schema.Array(Tool).check(Schema.isMinLength(1), Schema.isMaxLength(128))),
  tool_choice: maybe(
    Schema.Union([
      Schema.Literals(["none", "auto", "required"]),
      Schema.Struct({
        type: Schema.Literal("function"),
        function: Schema.Struct({ name: FunctionName })
      })
    ])
  ),
  parallel_tool_calls: maybe(Schema.Boolean),
  response_format: maybe(ResponseFormat),
  reasoning_effort: maybe(Schema.Literals(["none", "minimal", "low", "medium", "high"])),
  user: maybe(Schema.String.check(Schema.isMaxLength(256)))
})
export type ChatRequest = typeof ChatRequest.Type

export interface Asked {
  readonly request: ChatRequest
  /** Tokens of the prompt as they are estimated, for calls whose upstream does not say what it counted. */
  readonly inputTokens: number
  /** As many as the prompt can have at most, where an image has so many at most. */
  readonly mostInputTokens: (imageTokens: number) => number
}

const decode = Schema.decodeUnknownEffect(ChatRequest, { onExcessProperty: "error" })
export const readRequest = Effect.fnUntraced(function* (text: string): Effect.fn.Return<Asked, CallFailed> {
  if (tooDeepAt(text) !== undefined) {
    return yield* invalidRequest("invalid_json", "The body is nested too deeply")
  }
  const value = yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    catch: () => invalidRequest("invalid_json", "The body is not valid JSON")
  })
  const request = yield* Effect.mapError(decode(value), ({ issue }) => {
    const [first] = faultsOf("", issue)
    const param = paramOf(first?.pointer ?? "")
    // Not what it is: that would be a part of the prompt.
    const fault = first?.message ?? "is not valid"
    return fault === "Expected no excess property"
      ? invalidRequest("unknown_parameter", `${param} is no field that is supported here`, param)
      : invalidRequest("invalid_value", `${param || "The body"}: ${fault}`, param || undefined)
  })
  if (request.max_tokens != null && request.max_completion_tokens != null) {
    return yield* invalidRequest(
      "invalid_value",
      "max_tokens and max_completion_tokens say the same; send one of them",
      "max_tokens"
    )
  }
  if (request.stream_options != null && request.stream !== true) {
    return yield* invalidRequest("invalid_value", "stream_options needs stream to be true", "stream_options")
  }
  return { request, ...measure(request, text) }
})

/** Such as `messages[0].content`. */
const paramOf = (pointer: string): string =>
  pointer
    .split("/")
    .slice(1)
    .map((key, index) => (/^\d+$/.test(key) ? `[${key}]` : index === 0 ? key : `.${key}`))
    .join("")
    .slice(0, 200)

/**
 * Tokens of a text without a tokenizer: some need seconds for texts that are made for it, and each upstream has another.
 * A third of the bytes is high for English (a token has about four) and near for other scripts.
 */
export const estimateTokens = (bytes: number): number => Math.ceil(bytes / 3)

/** As many as an image usually has. */
const usualImageTokens = 2_000
/** Of what providers say to the model about tools and answers in JSON. */
const toolTokens = 1_000

const measure = (
  { messages, tools, response_format }: ChatRequest,
  text: string
): Pick<Asked, "inputTokens" | "mostInputTokens"> => {
  let bytes = Buffer.byteLength(text)
  let images = 0
  for (const message of messages) {
    if (message.role !== "user" || typeof message.content === "string") continue
    for (const part of message.content) {
      if (part.type !== "image_url") continue
      images++
      bytes -= part.image_url.url.length
    }
  }
  const said = tools != null || response_format != null ? toolTokens : 0
  return {
    inputTokens: estimateTokens(bytes) + images * usualImageTokens,
    // No tokenizer that works on bytes makes more tokens than there are bytes.
    mostInputTokens: (imageTokens) => bytes + said + images * imageTokens
  }
}
