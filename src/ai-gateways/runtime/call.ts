/**
 * A call from the moment that its request is known: it reserves the most that it can cost, is made, and is settled when
 * the request's scope closes, whatever closes it.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { GatewayCaller, GatewayCallers } from "../GatewayCallers.ts"
import type { CallOutcome, Ledger } from "../Ledger.ts"
import type { Begun } from "./attempt.ts"
import type { Sink, Usage } from "./dialects/dialect.ts"
import { type CallFailed, callFailed, invalidRequest } from "./failure.ts"
import type { Asked } from "./request.ts"
import { type Addressee, begin } from "./tries.ts"
import { type LiveUpstream, showBreaker } from "./Upstreams.ts"
import { costOf } from "./upstreams-file.ts"

export interface CallRequest {
  readonly caller: GatewayCaller
  readonly gateway: NonNullable<GatewayCaller["gateway"]>
  readonly model: AiModel
  readonly asked: Asked
  readonly upstreams: ReadonlyArray<LiveUpstream>
  readonly startedMs: number
  readonly sink: Sink
}

/** An answer that has begun. */
export interface Running {
  /** Passes on what comes next; false: the answer has ended. */
  readonly more: Effect.Effect<boolean, CallFailed>
  /** What was used, as it is known now. */
  readonly usage: () => Usage
  /** Nothing more will come: `more` answers so at once. */
  readonly isComplete: () => boolean
}

/** What calls are made with. */
export interface Books {
  readonly callers: GatewayCallers["Service"]
  readonly ledger: Ledger["Service"]
}

/** A prompt may have more tokens than estimated, as one of hexadecimal digits has. */
const doubt = 2

const stalled = callFailed(
  504,
  "upstream_timeout",
  "The model's provider stopped in the middle of its answer"
)
const tooLong = callFailed(504, "upstream_timeout", "The answer took longer than any may")
const ends = {
  credential: callFailed(401, "invalid_api_key", "The credential was revoked while the call was under way"),
  gateway: callFailed(404, "gateway_not_found", "The gateway was deleted while the call was under way")
}

export const startCall = Effect.fnUntraced(function* (
  { callers, ledger }: Books,
  call: CallRequest
): Effect.fn.Return<Running, CallFailed, Scope.Scope> {
  const { caller, gateway, model, asked, startedMs, sink } = call
  const { request, inputTokens } = asked
  const clock = yield* Clock.Clock
  const { upstreams, maxTokens } = yield* able(call)
  const longest = (upstream: LiveUpstream) => Math.min(maxTokens, upstream.settings.limits.outputTokens)
  const mostNanoUsd = Math.max(
    ...upstreams.map((upstream) =>
      costOf(upstream.settings, { input: inputTokens * doubt, cachedInput: 0, output: longest(upstream) })
    )
  )
  const reservation = yield* ledger
    .reserve({
      orgId: caller.orgId,
      projectId: gateway.projectId,
      gateway: gateway.uid,
      keyId: caller.keyId,
      model,
      mostNanoUsd
    })
    .pipe(
      Effect.mapError((error) => {
        switch (error._tag) {
          case "BudgetUsedUp":
            return callFailed(402, "budget_exceeded", error.message)
          case "GatewayGone":
            return callFailed(404, "gateway_not_found", error.message)
          case "StoreUnavailable":
            return unavailable
        }
      })
    )

  const addressee: Addressee = { upstream: undefined, owes: false }
  let begun: Begun | undefined
  /** Until something else is known, it is the client who ended it. */
  let status = 499
  const usage = (): Usage =>
    begun?.counter.progress.usage ?? {
      input: inputTokens,
      cachedInput: 0,
      output: begun?.counter.progress.outputTokens ?? 0
    }
  const outcome = (): CallOutcome => {
    const { upstream, owes } = addressee
    const used = owes ? usage() : { input: 0, cachedInput: 0, output: 0 }
    return {
      inputTokens: used.input,
      outputTokens: used.output,
      estimated: owes && begun?.counter.progress.usage === undefined,
      costNanoUsd: upstream === undefined ? 0 : costOf(upstream.settings, used),
      status,
      upstream: upstream?.settings.name ?? null,
      latencyMs: clock.currentTimeMillisUnsafe() - startedMs
    }
  }
  yield* reservation.sent(outcome)
  // A trial of an upstream that was left before it told anything.
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      if (begun === undefined) addressee.upstream?.breaker.ended()
    })
  )

  const stopped = yield* Deferred.make<never, CallFailed>()
  const stop = (why: CallFailed) =>
    Effect.andThen(
      Effect.sync(() => begun?.exchange.stop(why)),
      Deferred.fail(stopped, why)
    )
  yield* Effect.forkScoped(Effect.flatMap(callers.ended(caller), (why) => stop(ends[why])))

  const failed = (failure: CallFailed) =>
    Effect.sync(() => {
      status = failure.status
    })
  const started = yield* begin(
    {
      request,
      upstreams,
      maxTokens,
      sink,
      maxRetries: gateway.spec.maxRetries,
      timeoutMs: gateway.spec.timeoutMs
    },
    addressee
  ).pipe(Effect.raceFirst(Deferred.await(stopped)), Effect.tapError(failed))
  begun = started
  const upstream = addressee.upstream
  if (upstream === undefined) return yield* unavailable
  status = 499
  yield* Effect.forkScoped(watch(started, upstream, startedMs, stop))

  const ended = (works: boolean) =>
    Effect.suspend(() => {
      const now = clock.currentTimeMillisUnsafe()
      if (works) upstream.breaker.succeeded()
      else upstream.breaker.failed(now)
      return showBreaker(upstream, now)
    })
  const more = started.more.pipe(
    Effect.tap((goesOn) => {
      if (goesOn) return Effect.void
      status = 200
      return ended(true)
    }),
    Effect.tapError((failure) =>
      Effect.andThen(failed(failure), failure.status >= 500 ? ended(false) : Effect.void)
    )
  )
  return { more, usage, isComplete: () => started.counter.progress.done }
})

const unavailable = callFailed(503, "unavailable", "The service is not available at the moment", {
  again: true,
  retryAfter: 1
})

/** The upstreams that can do what the request says, and the longest answer that is asked of them. */
const able = Effect.fnUntraced(function* ({ asked, upstreams, model }: CallRequest) {
  const { request } = asked
  if (upstreams.length === 0) {
    return yield* callFailed(503, "model_unavailable", `The operator has named no provider for ${model}`)
  }
  const judged = upstreams.map((upstream) => ({ upstream, cannot: upstream.dialect.unsupported(request) }))
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
  const wanted = request.max_completion_tokens ?? request.max_tokens ?? most
  if (wanted > most) {
    return yield* invalidRequest("invalid_value", `${field} must be at most ${most} for ${model}`, field)
  }
  return { upstreams: good, maxTokens: wanted }
})

/** Ends an answer in which nothing comes any more, or that takes too long. */
const watch = Effect.fnUntraced(function* (
  { exchange }: Begun,
  { settings }: LiveUpstream,
  startedMs: number,
  stop: (why: CallFailed) => Effect.Effect<unknown>
) {
  const { idleSeconds, totalSeconds } = settings.limits
  const end = startedMs + totalSeconds * 1_000
  for (;;) {
    const now = yield* Clock.currentTimeMillis
    const idleUntil = (exchange.waitingSince() ?? now) + idleSeconds * 1_000
    if (now >= end) return yield* stop(tooLong)
    if (now >= idleUntil) return yield* stop(stalled)
    yield* Effect.sleep(Math.min(idleUntil, end) - now)
  }
})
