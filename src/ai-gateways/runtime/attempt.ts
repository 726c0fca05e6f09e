/** One try of one upstream, until its answer has begun. */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import { type Counter, counting } from "./answer.ts"
import type { Fault } from "./breaker.ts"
import type { Cancellation } from "./cancellation.ts"
import type { ChatRequest } from "./chat-request.ts"
import type { Reader, Sink } from "./dialects/dialect.ts"
import { eventSplitter } from "./events.ts"
import type { Broken, Exchange, Head } from "./exchange.ts"
import { type CallFailed, callFailed } from "./failure.ts"
import type { LiveUpstream } from "./Upstreams.ts"

/** Of an answer that is a failure, to see why. */
const longestRefusal = 16 * 1024
/** Of a whole answer: far more than the longest has. */
const longestAnswer = 32 * 1024 * 1024

export class AttemptFailed {
  readonly _tag = "AttemptFailed"
  readonly failure: CallFailed
  /** What may help: the same upstream a moment later, another one, or nothing. */
  readonly next: "again" | "other" | "nothing"
  /** What it tells of the upstream; undefined: nothing. */
  readonly fault: Fault | undefined
  constructor(failure: CallFailed, next: AttemptFailed["next"], fault?: Fault) {
    this.failure = failure
    this.next = next
    this.fault = fault
  }
}

const upstreamError = callFailed(502, "upstream_error", "The model's provider failed")
const unreachable = callFailed(502, "upstream_unreachable", "The model's provider cannot be reached")
const misconfigured = callFailed(
  502,
  "upstream_misconfigured",
  "The operator's access to the model's provider does not work"
)
const garbled = new AttemptFailed(upstreamError, "again", "call")

/** One try, as far as it is known at a moment, also to whoever interrupts it. */
export interface Try {
  readonly upstream: LiveUpstream
  readonly counter: Counter
  readonly cancellation: Cancellation
  /** The upstream may have the request. */
  sent: boolean
  /** It said that it did nothing with it. */
  refused: boolean
}

export const newTry = (upstream: LiveUpstream, sink: Sink, cancellation: Cancellation): Try => ({
  upstream,
  cancellation,
  counter: counting(sink),
  sent: false,
  refused: false
})

/** An answer that has begun. */
export interface Begun {
  readonly counter: Counter
  /** Passes on what comes next; false: the answer has ended. */
  readonly more: Effect.Effect<boolean, CallFailed>
  readonly exchange: Exchange
}

/** `sink` gets nothing unless the answer has begun. The exchange ends with the scope. */
export const attempt = Effect.fnUntraced(function* (
  made: Try,
  request: ChatRequest,
  maxTokens: number
): Effect.fn.Return<Begun, AttemptFailed | CallFailed, Scope.Scope> {
  const { upstream, counter, cancellation } = made
  const { settings, dialect, key } = upstream
  const exchange = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const started = upstream.start(
        dialect.send(request, {
          model: settings.model,
          key,
          maxTokens,
          maxTokensField: settings.maxTokensField
        }),
        () => {
          made.sent = true
        }
      )
      cancellation.covers(started)
      return started
    }),
    (started) => Effect.sync(() => (counter.progress.done ? started.leave() : started.abort()))
  )
  const failed = (error: Broken | CallFailed) =>
    error._tag === "CallFailed"
      ? error
      : new AttemptFailed(unreachable, "again", made.sent ? "call" : "upstream")
  const head = yield* Effect.mapError(exchange.head, failed)
  if (head.status !== 200) {
    made.refused = true
    const body =
      head.status === 400 || head.status === 413 || head.status === 422 ? yield* start(exchange) : ""
    return yield* Effect.fail(judge(head, dialect.refusal(body)))
  }
  if (!head.contentType.toLowerCase().startsWith("text/event-stream")) return yield* Effect.fail(garbled)

  const feed = feeding(dialect.reader(request), counter)
  /** False: it has ended. */
  const step = Effect.flatMap(Effect.mapError(exchange.take, failed), (piece) => {
    if (piece === undefined) return Effect.succeed(false)
    return feed(piece) ? Effect.succeed(true) : Effect.fail(garbled)
  })
  const cut = (error: AttemptFailed | CallFailed) =>
    error._tag === "CallFailed"
      ? error
      : callFailed(502, "upstream_error", "The model's provider failed in the middle of its answer")
  /** A failure that came together with the first part of the answer. */
  let broken: CallFailed | undefined
  while (!counter.progress.begun) {
    const went = yield* Effect.result(step)
    if (Result.isSuccess(went)) {
      if (!went.success) return yield* Effect.fail(garbled)
    } else if (counter.progress.begun) broken = cut(went.failure)
    else return yield* Effect.fail(went.failure)
  }
  const more = Effect.suspend(() => {
    const { progress } = counter
    if (broken !== undefined) return Effect.fail(broken)
    if (progress.done) return Effect.succeed(false)
    return Effect.flatMap(Effect.mapError(step, cut), (went) =>
      went || progress.finished ? Effect.succeed(went) : Effect.fail(cut(garbled))
    )
  })
  return { counter, more, exchange }
})

/** Takes pieces of bytes; false: they make no sense, or too much of it. */
const feeding = (read: Reader, counter: Counter) => {
  const split = eventSplitter()
  let bytes = 0
  return (piece: Uint8Array): boolean => {
    bytes += piece.length
    if (bytes > longestAnswer) return false
    const events = split(piece)
    if (events === undefined) return false
    for (const event of events) {
      if (counter.progress.done) return true
      if (!read(event, counter)) return false
    }
    return true
  }
}

/** The beginning of a body. */
const start = Effect.fnUntraced(function* (exchange: Exchange) {
  let text = ""
  while (text.length < longestRefusal) {
    const piece = yield* Effect.orElseSucceed(exchange.take, () => undefined)
    if (piece === undefined) break
    text += Buffer.from(piece).toString("latin1")
  }
  return text
})

/** What an upstream's status means to our client. Its words are not passed on: they may hold names, keys and prompts. */
const judge = (
  { status, retryAfter }: Head,
  refusal: "context_length_exceeded" | "content_filter" | undefined
): AttemptFailed => {
  switch (status) {
    case 400:
    case 413:
    case 422:
      return new AttemptFailed(
        refusal === "context_length_exceeded"
          ? callFailed(400, refusal, "The messages are longer than the model takes", { param: "messages" })
          : refusal === "content_filter"
            ? callFailed(400, refusal, "The model's provider refuses what the messages say", {
                param: "messages"
              })
            : callFailed(400, "upstream_rejected", "The model's provider rejected the request"),
        "nothing"
      )
    case 401:
    case 402:
    case 404:
      return new AttemptFailed(misconfigured, "other", "upstream")
    // Also what a firewall in front of some providers says to what it does not like in a prompt.
    case 403:
      return new AttemptFailed(misconfigured, "other", "call")
    case 429: {
      const seconds = Number(retryAfter)
      return new AttemptFailed(
        callFailed(429, "upstream_rate_limited", "The model's provider is at its limit; try again later", {
          again: true,
          ...(retryAfter !== undefined && Number.isInteger(seconds) && seconds >= 0
            ? { retryAfter: Math.min(seconds, 3_600) }
            : {})
        }),
        "again"
      )
    }
    default:
      return new AttemptFailed(upstreamError, status >= 500 || status === 408 ? "again" : "other", "call")
  }
}
