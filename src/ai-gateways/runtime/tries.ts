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
import { attempt, type Begun, newTry, type Try } from "./attempt.ts"
import type { Fault, Pass } from "./breaker.ts"
import type { Cancellation } from "./cancellation.ts"
import type { ChatRequest } from "./chat-request.ts"
import type { Sink } from "./dialects/dialect.ts"
import { type CallFailed, callFailed } from "./failure.ts"
import { type LiveUpstream, showBreaker } from "./Upstreams.ts"

export interface Tries {
  /** Who calls. */
  readonly orgId: string
  readonly request: ChatRequest
  readonly upstreams: ReadonlyArray<LiveUpstream>
  readonly maxTokens: number
  readonly sink: Sink
  readonly maxRetries: number
  /** With {@link timedOut}: the first part of the answer did not come in time, all tries and pauses included. */
  readonly cancellation: Cancellation
  /** Before another try: holds what the last one cost, beside what the next may. */
  readonly holdAnother: Effect.Effect<void, CallFailed>
}

/** A try of a call, with what its upstream's breaker is told by it. */
export interface Made extends Try {
  readonly pass: Pass
  readonly startedMs: number
  /** It said that its upstream does not work. */
  blamed: boolean
}

/** Counters by what became of a try: each keeps its name in the registry, which costs as much to make as a small event. */
const counters = new WeakMap<LiveUpstream, Map<string, Metric.Counter<number>>>()
const count = (upstream: LiveUpstream, outcome: string) => {
  const known = counters.get(upstream) ?? new Map<string, Metric.Counter<number>>()
  const counter =
    known.get(outcome) ??
    Metric.counter("svc_ai_upstream_tries_total", {
      description: "Requests to upstreams of AI gateways, by what became of them",
      incremental: true,
      attributes: { upstream: upstream.settings.name, outcome }
    })
  counters.set(upstream, known.set(outcome, counter))
  return Metric.update(counter, 1)
}

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
export const timedOut = callFailed(
  504,
  "upstream_timeout",
  "The model's provider did not begin to answer in time"
)

/** `made` gets every try as it begins, also for whoever interrupts it. */
export const begin = Effect.fnUntraced(
  function* (
    { orgId, request, upstreams, maxTokens, sink, maxRetries, cancellation, holdAnother }: Tries,
    made: Array<Made>
  ): Effect.fn.Return<Begun, CallFailed, Scope.Scope> {
    const scope = yield* Scope.Scope
    let failure: CallFailed | undefined
    let left = 1 + maxRetries
    let at = 0
    for (;;) {
      const why = cancellation.why()
      if (why !== undefined) return yield* why
      const upstream = upstreams[at]
      if (upstream === undefined) return yield* failure ?? resting
      const now = yield* Clock.currentTimeMillis
      const isBusy = upstream.active() >= upstream.settings.limits.concurrency
      const pass = isBusy ? undefined : upstream.breaker.admit(orgId, now)
      if (pass === undefined) {
        failure ??= isBusy ? busy : resting
        at++
        continue
      }
      const one: Made = { ...newTry(upstream, sink, cancellation), pass, startedMs: now, blamed: false }
      made.push(one)
      const own = yield* Scope.fork(scope)
      const limit = Math.min(maxTokens, upstream.settings.limits.outputTokens)
      const result = yield* Effect.result(Scope.provide(attempt(one, request, limit), own))
      if (result._tag === "Success") {
        pass.begun()
        yield* count(upstream, "begun")
        return result.success
      }
      yield* Scope.close(own, Exit.void)
      const failed = result.failure
      if (failed._tag === "CallFailed") {
        if (failed !== timedOut) pass.ended()
        return yield* failed
      }
      if (failed.fault === undefined) pass.ended()
      else yield* blame(made, failed.fault)
      yield* count(upstream, failed.failure.code)
      yield* Effect.logDebug(`the upstream ${upstream.settings.name} failed: ${failed.failure.code}`)
      failure = failed.failure
      left--
      if (failed.next === "nothing" || left === 0) return yield* failure
      yield* cancellation.during(holdAnother)
      const after = upstreams.length - at - 1
      const pause = yield* pauseAfter(maxRetries - left, failure.retryAfter)
      if (failed.next === "other" || left <= after || (pause > longestPauseMs && after > 0)) at++
      else if (pause > longestPauseMs) return yield* failure
      else yield* cancellation.during(Effect.sleep(pause))
    }
  },
  (self, _, made) => Effect.tapError(self, (failure) => (failure === timedOut ? late(made) : Effect.void))
)

/** A gateway may have less patience than the operator asks of an upstream: that is no failure of the upstream. */
const late = Effect.fnUntraced(function* (made: ReadonlyArray<Made>) {
  const last = made.at(-1)
  if (last !== undefined) {
    const { limits } = last.upstream.settings
    const waited = (yield* Clock.currentTimeMillis) - last.startedMs
    if (waited < limits.beginSeconds * 1_000) last.pass.ended()
    else yield* blame(made, last.sent ? "call" : "upstream")
    yield* count(last.upstream, "timeout")
  }
})

/** The last try says that its upstream does not work. */
export const blame = Effect.fnUntraced(function* (made: ReadonlyArray<Made>, fault: Fault) {
  const last = made.at(-1)
  if (last === undefined) return
  const now = yield* Clock.currentTimeMillis
  last.pass.failed(
    now,
    fault,
    made.some(({ upstream, blamed }) => blamed && upstream === last.upstream)
  )
  last.blamed = true
  yield* showBreaker(last.upstream, now)
})

/** Milliseconds; what the upstream asks for counts. Full jitter, so that calls that failed together part. */
const pauseAfter = (tries: number, retryAfter: number | undefined) =>
  Effect.map(Random.next, (share) =>
    Math.max(share * Math.min(firstPauseMs * 2 ** tries, longestPauseMs), (retryAfter ?? 0) * 1_000)
  )
