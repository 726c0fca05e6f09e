/**
 * Tries upstreams in their order until an answer has begun. One that fails is tried again after a pause, as long as a
 * try is left for each that comes after it.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Random from "effect/Random"
import * as Scope from "effect/Scope"
import { type AttemptFailed, attempt, type Begun } from "./attempt.ts"
import type { Sink } from "./dialects/dialect.ts"
import { type CallFailed, callFailed } from "./failure.ts"
import type { ChatRequest } from "./request.ts"
import { type LiveUpstream, showBreaker } from "./Upstreams.ts"

export interface Tries {
  readonly request: ChatRequest
  readonly upstreams: ReadonlyArray<LiveUpstream>
  readonly maxTokens: number
  readonly sink: Sink
  readonly maxRetries: number
  /** For the first part of an answer, all tries and pauses included. */
  readonly timeoutMs: number
}

/** Whom a call has been sent to. */
export interface Addressee {
  upstream: LiveUpstream | undefined
  /** It has the request, and has not said that it did nothing with it. */
  owes: boolean
}

const tried = Metric.counter("svc_ai_upstream_tries_total", {
  description: "Requests to upstreams of AI gateways, by what became of them",
  incremental: true
})
const count = ({ settings }: LiveUpstream, outcome: string) =>
  Metric.update(Metric.withAttributes(tried, { upstream: settings.name, outcome }), 1)

const firstPauseMs = 200
const longestPauseMs = 4_000

const resting = callFailed(
  503,
  "model_unavailable",
  "The model's providers fail; they are tried again soon",
  {
    again: true,
    retryAfter: 5
  }
)
const busy = callFailed(429, "upstream_busy", "As many calls of this model are under way as are allowed", {
  again: true,
  retryAfter: 1
})
const timedOut = callFailed(504, "upstream_timeout", "The model's provider did not begin to answer in time")

/** `addressee` says at every moment whom the call is at, also for whoever interrupts it. */
export const begin = Effect.fnUntraced(
  function* (
    { request, upstreams, maxTokens, sink, maxRetries }: Tries,
    addressee: Addressee
  ): Effect.fn.Return<Begun, CallFailed, Scope.Scope> {
    const scope = yield* Scope.Scope
    let failure: CallFailed | undefined
    let left = 1 + maxRetries
    let at = 0
    for (;;) {
      const upstream = upstreams[at]
      if (upstream === undefined) return yield* failure ?? resting
      const now = yield* Clock.currentTimeMillis
      const isBusy = upstream.active() >= upstream.settings.limits.concurrency
      if (isBusy || !upstream.breaker.admits(now)) {
        failure ??= isBusy ? busy : resting
        at++
        continue
      }
      addressee.upstream = upstream
      addressee.owes = true
      const own = yield* Scope.fork(scope)
      const limit = Math.min(maxTokens, upstream.settings.limits.outputTokens)
      const result = yield* Effect.result(Scope.provide(attempt(upstream, request, limit, sink), own))
      if (result._tag === "Success") {
        upstream.breaker.begun()
        yield* count(upstream, "begun")
        return result.success
      }
      yield* Scope.close(own, Exit.void)
      addressee.owes = false
      const failed = result.failure
      if (failed._tag === "CallFailed") {
        upstream.breaker.ended()
        return yield* failed
      }
      yield* judged(upstream, failed)
      addressee.upstream = undefined
      failure = failed.failure
      left--
      if (failed.next === "nothing" || left === 0) return yield* failure
      const after = upstreams.length - at - 1
      const pause = yield* pauseAfter(maxRetries - left, failure.retryAfter)
      if (failed.next === "other" || left <= after || (pause > longestPauseMs && after > 0)) at++
      else if (pause > longestPauseMs) return yield* failure
      else yield* Effect.sleep(pause)
    }
  },
  (self, { timeoutMs }, addressee) =>
    Effect.timeoutOrElse(self, {
      duration: timeoutMs,
      orElse: () =>
        Effect.gen(function* () {
          const { upstream } = addressee
          if (upstream !== undefined) {
            upstream.breaker.failed(yield* Clock.currentTimeMillis)
            yield* count(upstream, "timeout")
          }
          return yield* timedOut
        })
    })
)

const judged = Effect.fnUntraced(function* (upstream: LiveUpstream, { failure, blame }: AttemptFailed) {
  const now = yield* Clock.currentTimeMillis
  if (blame) upstream.breaker.failed(now)
  else upstream.breaker.ended()
  yield* showBreaker(upstream, now)
  yield* count(upstream, failure.code)
  yield* Effect.logDebug(`the upstream ${upstream.settings.name} failed: ${failure.code}`)
})

/** Milliseconds; what the upstream asks for counts. Full jitter, so that calls that failed together part. */
const pauseAfter = (tries: number, retryAfter: number | undefined) =>
  Effect.map(Random.next, (share) =>
    Math.max(share * Math.min(firstPauseMs * 2 ** tries, longestPauseMs), (retryAfter ?? 0) * 1_000)
  )
