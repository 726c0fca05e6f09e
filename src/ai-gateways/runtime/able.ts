/** Which of a model's upstreams can do what a request says. */
import * as Effect from "effect/Effect"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { ChatRequest } from "./chat-request.ts"
import { callFailed, invalidRequest } from "./failure.ts"
import type { LiveUpstream } from "./Upstreams.ts"

/** Those that can do all of it, and the longest answer that is asked of them. */
export const able = Effect.fnUntraced(function* (
  model: AiModel,
  request: ChatRequest,
  upstreams: ReadonlyArray<LiveUpstream>
) {
  if (upstreams.length === 0) {
    return yield* callFailed(503, "model_unavailable", `The operator has named no provider for ${model}`)
  }
  const imageUrl = imageUrlIn(request)
  const judged = upstreams.map((upstream) => ({
    upstream,
    cannot: (upstream.settings.imageUrls ? undefined : imageUrl) ?? upstream.dialect.unsupported(request)
  }))
  const good = judged.flatMap(({ upstream, cannot }) => (cannot === undefined ? [upstream] : []))
  if (good.length === 0) {
    const field = judged[0]?.cannot ?? ""
    return yield* invalidRequest(
      "unsupported_parameter",
      `${field} is nothing that the providers of ${model} take with this request`,
      field
    )
  }
  const most = Math.max(...good.map(({ settings }) => settings.limits.outputTokens))
  const field = request.max_completion_tokens != null ? "max_completion_tokens" : "max_tokens"
  const wanted = request.max_completion_tokens ?? request.max_tokens
  if (wanted == null) return { upstreams: good, maxTokens: most }
  const long = good.filter(({ settings }) => settings.limits.outputTokens >= wanted)
  if (long.length === 0) {
    return yield* invalidRequest("invalid_value", `${field} must be at most ${most} for ${model}`, field)
  }
  return { upstreams: long, maxTokens: wanted }
})

/** Of the first image that the upstream would have to fetch. */
const imageUrlIn = ({ messages }: ChatRequest): string | undefined => {
  for (const [at, message] of messages.entries()) {
    if (message.role !== "user" || typeof message.content === "string") continue
    const part = message.content.findIndex(
      (one) => one.type === "image_url" && !one.image_url.url.startsWith("data:")
    )
    if (part !== -1) return `messages[${at}].content[${part}].image_url.url`
  }
  return undefined
}
