/**
 * How an upstream is spoken to. Whatever a dialect's events look like, a reader makes them what a {@link Sink} takes, so
 * that clients get the same answers from all of them.
 */
import type { ChatRequest } from "../chat-request.ts"

export const finishReasons = ["stop", "length", "tool_calls", "content_filter"] as const
export type FinishReason = (typeof finishReasons)[number]

export interface ToolCallDelta {
  readonly index: number
  readonly id?: string
  readonly type?: "function"
  readonly function: { readonly name?: string; readonly arguments?: string }
}

/** What is new in the answer; as OpenAI's chunks have it, but for the role. */
export interface Delta {
  readonly content?: string
  readonly refusal?: string
  /** What the model says to itself; many model servers have this field beside OpenAI's. */
  readonly reasoning_content?: string
  readonly tool_calls?: ReadonlyArray<ToolCallDelta>
}

/** Tokens, as the upstream counted them. */
export interface Usage {
  /** Those that were cached included. */
  readonly input: number
  /** Read from the provider's cache. */
  readonly cachedInput: number
  readonly output: number
}

export interface Sink {
  readonly delta: (delta: Delta) => void
  readonly finish: (reason: FinishReason) => void
  readonly usage: (usage: Usage) => void
  /** Nothing comes after this. */
  readonly done: () => void
}

/** Takes the data of one event. False: it is no event of the dialect, or tells of a failure; nothing after it counts. */
export type Reader = (data: string, sink: Sink) => boolean

export interface Sending {
  readonly model: string
  readonly key: string
  /** The longest answer. */
  readonly maxTokens: number
  /** How the upstream calls that, in OpenAI's dialect. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens"
}

export interface Dialect {
  /** Which part of the request it has no way to say; undefined: it can say all of it. */
  readonly unsupported: (request: ChatRequest) => string | undefined
  /** The request for a streamed answer; `path` follows the upstream's address. */
  readonly send: (
    request: ChatRequest,
    sending: Sending
  ) => { readonly path: string; readonly headers: Readonly<Record<string, string>>; readonly body: string }
  readonly reader: (request: ChatRequest) => Reader
  /** Why it refused a request (400), where the caller can do something about it. */
  readonly refusal: (body: string) => Refusal | undefined
}

export type Refusal = "context_length_exceeded" | "content_filter"
