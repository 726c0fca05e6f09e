/** What clients get: OpenAI's chunks as events, or its completion as one JSON document. Both come from a {@link Sink}. */
import { randomUUID } from "node:crypto"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { Delta, FinishReason, Sink, Usage } from "./dialects/dialect.ts"
import { type CallFailed, errorBody } from "./failure.ts"
import { estimateTokens } from "./request.ts"

/** What all events of one answer have in common. */
export interface Naming {
  /** Says nothing of the upstream. */
  readonly id: string
  /** Unix time in seconds. */
  readonly created: number
  readonly model: AiModel
}

export const naming = (model: AiModel, nowMs: number): Naming => ({
  id: `chatcmpl-${randomUUID().replaceAll("-", "")}`,
  created: Math.floor(nowMs / 1_000),
  model
})

/** How far an answer has come. */
export interface Progress {
  /** There is something for the client. */
  readonly begun: boolean
  readonly finished: boolean
  readonly done: boolean
  readonly usage: Usage | undefined
  /** Tokens of what came so far, estimated. */
  readonly outputTokens: number
}

/** Counts what passes to a sink. */
export interface Counter extends Sink {
  readonly progress: Progress
}

export const counting = (to: Sink): Counter => {
  let bytes = 0
  const progress = {
    begun: false,
    finished: false,
    done: false,
    usage: undefined as Usage | undefined,
    get outputTokens() {
      return estimateTokens(bytes)
    }
  }
  return {
    progress,
    delta: (delta) => {
      progress.begun = true
      bytes += bytesOf(delta)
      to.delta(delta)
    },
    finish: (reason) => {
      if (progress.finished) return
      progress.begun = true
      progress.finished = true
      to.finish(reason)
    },
    usage: (usage) => {
      progress.usage = usage
      to.usage(usage)
    },
    done: () => {
      progress.done = true
      to.done()
    }
  }
}

const bytesOf = ({ content, refusal, reasoning_content, tool_calls }: Delta): number => {
  let bytes = 0
  for (const text of [content, refusal, reasoning_content]) bytes += Buffer.byteLength(text ?? "")
  for (const { function: call } of tool_calls ?? []) {
    bytes += Buffer.byteLength(call.name ?? "") + Buffer.byteLength(call.arguments ?? "")
  }
  return bytes
}

const usageBody = ({ input, output, cachedInput }: Usage) => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
  prompt_tokens_details: { cached_tokens: cachedInput }
})

/** Collects events as text; `take` answers what has come since it was asked last. */
export const eventWriter = ({ id, created, model }: Naming, wantsUsage: boolean) => {
  const noUsage = wantsUsage ? `,"usage":null` : ""
  const head = `data: {"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${created},"model":${JSON.stringify(model)},"choices":[`
  let out = ""
  let first = true
  const chunk = (delta: object, reason: FinishReason | null) => {
    out += `${head}{"index":0,"delta":${JSON.stringify(delta)},"logprobs":null,"finish_reason":${reason === null ? null : `"${reason}"`}}]${noUsage}}\n\n`
  }
  const sink: Sink = {
    delta: (delta) => {
      chunk(first ? { role: "assistant", content: "", refusal: null, ...delta } : delta, null)
      first = false
    },
    finish: (reason) => chunk({}, reason),
    usage: () => {},
    done: () => {}
  }
  return {
    sink,
    take: () => {
      const taken = out
      out = ""
      return taken
    },
    end: (usage: Usage) => {
      const last = wantsUsage ? `${head}],"usage":${JSON.stringify(usageBody(usage))}}\n\n` : ""
      return `${last}data: [DONE]\n\n`
    },
    /** In the middle of an answer a failure is an event, and nothing comes after it. */
    failed: (failure: CallFailed) => `data: ${JSON.stringify(errorBody(failure))}\n\n`
  }
}

interface CollectedCall {
  id: string
  name: string
  arguments: string
}

/** Collects the whole answer. */
export const completion = ({ id, created, model }: Naming) => {
  let content: string | undefined
  let refusal: string | undefined
  let reasoning: string | undefined
  let finish: FinishReason = "stop"
  const calls = new Map<number, CollectedCall>()
  const sink: Sink = {
    delta: (delta) => {
      if (delta.content !== undefined) content = (content ?? "") + delta.content
      if (delta.reasoning_content !== undefined) reasoning = (reasoning ?? "") + delta.reasoning_content
      if (delta.refusal !== undefined) refusal = (refusal ?? "") + delta.refusal
      for (const one of delta.tool_calls ?? []) {
        const call = calls.get(one.index) ?? { id: "", name: "", arguments: "" }
        if (one.id !== undefined) call.id = one.id
        if (one.function.name !== undefined) call.name = one.function.name
        call.arguments += one.function.arguments ?? ""
        calls.set(one.index, call)
      }
    },
    finish: (reason) => {
      finish = reason
    },
    usage: () => {},
    done: () => {}
  }
  const body = (usage: Usage) => ({
    id,
    object: "chat.completion",
    created,
    model,
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: (content ?? "") === "" && calls.size > 0 ? null : (content ?? null),
          refusal: refusal ?? null,
          ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
          ...(calls.size === 0
            ? {}
            : {
                tool_calls: [...calls]
                  .sort(([a], [b]) => a - b)
                  .map(([, call]) => ({
                    id: call.id,
                    type: "function",
                    function: { name: call.name, arguments: call.arguments }
                  }))
              })
        },
        logprobs: null,
        finish_reason: finish
      }
    ],
    usage: usageBody(usage)
  })
  return { sink, body }
}
