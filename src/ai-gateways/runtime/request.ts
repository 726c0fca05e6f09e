/** Reads the body of a request, and says what is wrong with it, and how much it may cost. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { tooDeepAt } from "#schemas/json-depth.ts"
import { faultsOf } from "#src/api/failure.ts"
import { ChatRequest } from "./chat-request.ts"
import { type CallFailed, invalidRequest } from "./failure.ts"

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
