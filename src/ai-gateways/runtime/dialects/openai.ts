/** OpenAI's chat completions (its API reference, "Chat Completions" and "Streaming"), which most model servers speak. */
import { countOf, type Fields, fieldsOf, listOf, parseFields, textOf } from "../fields.ts"
import { type Dialect, finishReasons, type Reader, type ToolCallDelta } from "./dialect.ts"

export const openai: Dialect = {
  unsupported: () => undefined,
  send: (request, { model, key, maxTokens, maxTokensField }) => {
    const { max_tokens: _, max_completion_tokens: __, stream_options: ___, ...same } = request
    return {
      path: "/chat/completions",
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({
        ...same,
        model,
        [maxTokensField]: maxTokens,
        stream: true,
        stream_options: { include_usage: true }
      })
    }
  },
  reader: () => read,
  refusal: (body) => {
    const code = textOf(fieldsOf(parseFields(body)?.["error"])["code"])
    return code === "context_length_exceeded" || code === "content_filter" ? code : undefined
  }
}

const read: Reader = (data, sink) => {
  if (data === "[DONE]") {
    sink.done()
    return true
  }
  const event = parseFields(data)
  if (event === undefined || event["error"] != null || !Array.isArray(event["choices"])) return false
  const [choice] = listOf(event["choices"])
  if (choice !== undefined) readChoice(fieldsOf(choice), sink)
  readUsage(fieldsOf(event["usage"]), sink)
  return true
}

const readChoice = (choice: Fields, sink: Parameters<Reader>[1]): void => {
  const delta = fieldsOf(choice["delta"])
  const content = textOf(delta["content"])
  const refusal = textOf(delta["refusal"])
  // Servers of models that reason (vLLM, DeepSeek); others have the second name.
  const reasoning = textOf(delta["reasoning_content"]) ?? textOf(delta["reasoning"])
  const calls = listOf(delta["tool_calls"])
  if (content !== undefined || refusal !== undefined || reasoning !== undefined || calls.length > 0) {
    sink.delta({
      ...(content === undefined ? {} : { content }),
      ...(refusal === undefined ? {} : { refusal }),
      ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
      ...(calls.length === 0 ? {} : { tool_calls: calls.map(readCall) })
    })
  }
  const reason = choice["finish_reason"]
  if (reason != null) sink.finish(finishReasons.find((known) => known === reason) ?? "stop")
}

const readCall = (value: unknown, place: number): ToolCallDelta => {
  const call = fieldsOf(value)
  const made = fieldsOf(call["function"])
  const id = textOf(call["id"])
  const name = textOf(made["name"])
  const args = textOf(made["arguments"])
  return {
    index: countOf(call["index"]) ?? place,
    ...(id === undefined ? {} : { id, type: "function" }),
    function: {
      ...(name === undefined ? {} : { name }),
      ...(args === undefined ? {} : { arguments: args })
    }
  }
}

const readUsage = (usage: Fields, sink: Parameters<Reader>[1]): void => {
  const input = countOf(usage["prompt_tokens"])
  const output = countOf(usage["completion_tokens"])
  if (input === undefined || output === undefined) return
  const cached = countOf(fieldsOf(usage["prompt_tokens_details"])["cached_tokens"]) ?? 0
  sink.usage({ input, output, cachedInput: Math.min(cached, input) })
}
