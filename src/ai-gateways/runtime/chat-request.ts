/**
 * A request for a chat completion, as OpenAI's API reference defines it (`POST /chat/completions`). What stands here is
 * passed on; what does not is refused by its name, so that nobody believes that it had an effect.
 */
import * as Schema from "effect/Schema"

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

export const ChatRequest = Schema.Struct({
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
