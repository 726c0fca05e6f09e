/** Anthropic's messages (its API reference, "Messages" and "Streaming messages"; version 2023-06-01). */

import type { ChatRequest, Message } from "../chat-request.ts"
import { countOf, type Fields, fieldsOf, parseFields, textOf } from "../fields.ts"
import type { Dialect, FinishReason, Reader, Sink } from "./dialect.ts"

export const anthropic: Dialect = {
  unsupported: (request) => {
    if (request.presence_penalty) return "presence_penalty"
    if (request.frequency_penalty) return "frequency_penalty"
    if (request.reasoning_effort != null) return "reasoning_effort"
    if (request.seed != null) return "seed"
    if ((request.temperature ?? 0) > 1) return "temperature"
    // Both would be tools of the model, of which it may choose the wrong one.
    if (asJson(request) && request.tools != null) return "response_format"
    const { response_format: format, tools, tool_choice } = request
    if (format?.type === "json_schema" && format.json_schema.strict === true) {
      return "response_format.json_schema.strict"
    }
    const strict = (tools ?? []).findIndex((tool) => tool.function.strict === true)
    if (strict !== -1) return `tools[${strict}].function.strict`
    if (tools == null && tool_choice != null && tool_choice !== "none" && tool_choice !== "auto") {
      return "tool_choice"
    }
    for (const [at, message] of request.messages.entries()) {
      const cannot = unsupportedIn(message)
      if (cannot !== undefined) return `messages[${at}].${cannot}`
    }
    return undefined
  },
  send: (request, { model, key, maxTokens }) => {
    const system = request.messages.flatMap((message) =>
      message.role === "system" || message.role === "developer" ? [plainText(message.content)] : []
    )
    const { stop } = request
    return {
      path: "/messages",
      headers: { "x-api-key": key, "anthropic-version": "2023-06-01" },
      body: JSON.stringify({
        model,
        max_tokens: maxTokens,
        stream: true,
        ...(system.length === 0 ? {} : { system: system.join("\n\n") }),
        messages: turnsOf(request.messages),
        ...(request.temperature == null ? {} : { temperature: request.temperature }),
        ...(request.top_p == null ? {} : { top_p: request.top_p }),
        ...(stop == null ? {} : { stop_sequences: typeof stop === "string" ? [stop] : stop }),
        ...(request.user == null ? {} : { metadata: { user_id: request.user } }),
        ...toolsOf(request)
      })
    }
  },
  reader: (request) => readerOf(asJson(request)),
  refusal: (body) => {
    const message = textOf(fieldsOf(parseFields(body)?.["error"])["message"]) ?? ""
    return /prompt is too long|exceed context limit/.test(message) ? "context_length_exceeded" : undefined
  }
}

const unsupportedIn = (message: Message): string | undefined => {
  if (message.role === "tool") return undefined
  if (message.name != null) return "name"
  if (message.role === "assistant") {
    const wrong = (message.tool_calls ?? []).findIndex(
      (call) => argumentsOf(call.function.arguments) === undefined
    )
    return wrong === -1 ? undefined : `tool_calls[${wrong}].function.arguments`
  }
  if (message.role !== "user" || typeof message.content === "string") return undefined
  const detailed = message.content.findIndex(
    (part) => part.type === "image_url" && (part.image_url.detail ?? "auto") !== "auto"
  )
  return detailed === -1 ? undefined : `content[${detailed}].image_url.detail`
}

/** An answer in JSON is asked for as the arguments of a tool that the model has to call. */
const answerTool = "answer"
const asJson = ({ response_format }: ChatRequest): boolean =>
  response_format != null && response_format.type !== "text"

const argumentsOf = (text: string): Fields | undefined => parseFields(text === "" ? "{}" : text)

const plainText = (content: string | ReadonlyArray<{ readonly text: string }>): string =>
  typeof content === "string" ? content : content.map(({ text }) => text).join("")

type Block = Readonly<Record<string, unknown>>
interface Turn {
  readonly role: "user" | "assistant"
  readonly content: ReadonlyArray<Block>
}

/** Neighbours of the same role become one turn: results of several tools have to be in one. */
const turnsOf = (messages: ReadonlyArray<Message>): ReadonlyArray<Turn> => {
  const turns: Array<Turn> = []
  for (const message of messages) {
    if (message.role === "system" || message.role === "developer") continue
    const role = message.role === "assistant" ? "assistant" : "user"
    const content = blocksOf(message)
    const last = turns.at(-1)
    if (last?.role === role) turns[turns.length - 1] = { role, content: [...last.content, ...content] }
    else turns.push({ role, content })
  }
  return turns
}

/** Empty texts are left out: they are refused, and OpenAI's clients send them beside calls of tools. */
const textBlocks = (text: string): ReadonlyArray<Block> => (text === "" ? [] : [{ type: "text", text }])

const blocksOf = (message: Message): ReadonlyArray<Block> => {
  switch (message.role) {
    case "tool":
      return [{ type: "tool_result", tool_use_id: message.tool_call_id, content: plainText(message.content) }]
    case "assistant":
      return [
        ...textBlocks(plainText(message.content ?? "")),
        ...textBlocks(message.refusal ?? ""),
        ...(message.tool_calls ?? []).map(({ id, function: { name, arguments: args } }) => ({
          type: "tool_use",
          id,
          name,
          input: argumentsOf(args) ?? {}
        }))
      ]
    case "user":
      if (typeof message.content === "string") return textBlocks(message.content)
      return message.content.flatMap((part) =>
        part.type === "text"
          ? textBlocks(part.text)
          : [{ type: "image", source: imageSource(part.image_url.url) }]
      )
    default:
      return textBlocks(plainText(message.content))
  }
}

const imageSource = (url: string): Block => {
  if (!url.startsWith("data:")) return { type: "url", url }
  const comma = url.indexOf(",")
  return { type: "base64", media_type: url.slice(5, url.indexOf(";")), data: url.slice(comma + 1) }
}

const noParameters = { type: "object", properties: {} }

const toolsOf = (request: ChatRequest): Block => {
  const { tools, tool_choice, parallel_tool_calls, response_format } = request
  if (response_format != null && response_format.type !== "text") {
    const asked = response_format.type === "json_schema" ? response_format.json_schema : undefined
    const name = asked?.name ?? answerTool
    return {
      tools: [
        {
          name,
          description: asked?.description ?? "Gives the answer",
          input_schema: asked?.schema ?? { type: "object" }
        }
      ],
      tool_choice: { type: "tool", name }
    }
  }
  if (tools == null) return {}
  const single = parallel_tool_calls === false ? { disable_parallel_tool_use: true } : {}
  const choice = tool_choice ?? "auto"
  return {
    tools: tools.map(({ function: { name, description, parameters } }) => ({
      name,
      ...(description == null ? {} : { description }),
      input_schema: parameters ?? noParameters
    })),
    tool_choice:
      choice === "none"
        ? { type: "none" }
        : choice === "auto" || choice === "required"
          ? { type: choice === "auto" ? "auto" : "any", ...single }
          : { type: "tool", name: choice.function.name, ...single }
  }
}

const reasons: Readonly<Record<string, FinishReason>> = {
  end_turn: "stop",
  stop_sequence: "stop",
  pause_turn: "stop",
  tool_use: "tool_calls",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  refusal: "content_filter"
}

/** `json`: the arguments of the tool are the answer. */
const readerOf = (json: boolean): Reader => {
  /** Calls by the index of their block: their place in the answer, and their arguments until some come by themselves. */
  const calls = new Map<number, { readonly place: number; args: string }>()
  const passArguments = (place: number, args: string, sink: Sink) =>
    sink.delta(json ? { content: args } : { tool_calls: [{ index: place, function: { arguments: args } }] })
  let input: number | undefined
  let cachedInput = 0

  return (data, sink) => {
    const event = parseFields(data)
    const type = textOf(event?.["type"])
    if (event === undefined || type === undefined) return false
    switch (type) {
      case "error":
        return false
      case "message_start": {
        const usage = fieldsOf(fieldsOf(event["message"])["usage"])
        const fresh = countOf(usage["input_tokens"])
        cachedInput = countOf(usage["cache_read_input_tokens"]) ?? 0
        const written = countOf(usage["cache_creation_input_tokens"]) ?? 0
        input = fresh === undefined ? undefined : fresh + cachedInput + written
        sink.delta({ content: "" })
        return true
      }
      case "content_block_start": {
        const block = fieldsOf(event["content_block"])
        const index = countOf(event["index"])
        if (block["type"] === "text") {
          const content = textOf(block["text"])
          if (content) sink.delta({ content })
        } else if (block["type"] === "tool_use" && index !== undefined) {
          const place = calls.size
          // A tool without arguments gets none, and clients parse them as JSON all the same.
          calls.set(index, { place, args: JSON.stringify(fieldsOf(block["input"])) })
          if (json) return true
          sink.delta({
            tool_calls: [
              {
                index: place,
                id: textOf(block["id"]) ?? "",
                type: "function",
                function: { name: textOf(block["name"]) ?? "", arguments: "" }
              }
            ]
          })
        }
        return true
      }
      case "content_block_delta": {
        const delta = fieldsOf(event["delta"])
        const text = textOf(delta["text"])
        const part = textOf(delta["partial_json"])
        if (delta["type"] === "text_delta" && text !== undefined) {
          // Beside the tool that is the answer, what else is said is no part of it.
          if (!json) sink.delta({ content: text })
        } else if (delta["type"] === "input_json_delta" && part !== undefined) {
          const call = calls.get(countOf(event["index"]) ?? -1)
          if (call !== undefined && part !== "") {
            call.args = ""
            passArguments(call.place, part, sink)
          }
        } else if (delta["type"] === "thinking_delta") {
          sink.delta({ reasoning_content: textOf(delta["thinking"]) ?? "" })
        }
        return true
      }
      case "content_block_stop": {
        const call = calls.get(countOf(event["index"]) ?? -1)
        if (call !== undefined && call.args !== "") passArguments(call.place, call.args, sink)
        return true
      }
      case "message_delta": {
        const output = countOf(fieldsOf(event["usage"])["output_tokens"])
        if (input !== undefined && output !== undefined) sink.usage({ input, cachedInput, output })
        const reason = textOf(fieldsOf(event["delta"])["stop_reason"])
        if (reason !== undefined) {
          const known = reasons[reason] ?? "stop"
          sink.finish(json && known === "tool_calls" ? "stop" : known)
        }
        return true
      }
      case "message_stop":
        sink.done()
        return true
      default:
        // Kinds that come later, and `ping`.
        return true
    }
  }
}
