/**
 * A call from the moment that its request is known: it reserves the most that it can cost, is made, and is settled when
 * the request's scope closes, whatever closes it.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { GatewayCaller, GatewayCallers } from "../GatewayCallers.ts"
import type { CallOutcome, Ledger } from "../Ledger.ts"
import type { BudgetUsedUp, GatewayGone } from "../ledger-batches.ts"
import { able } from "./able.ts"
import type { Begun, Try } from "./attempt.ts"
import type { Sink, Usage } from "./dialects/dialect.ts"
import { type CallFailed, callFailed, unavailable } from "./failure.ts"
import type { Asked } from "./request.ts"
import { begin, blame, type Made } from "./tries.ts"
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
  /** The call was ended here, and is settled; what is left of its answer is why. */
  readonly stopped: Effect.Effect<void>
}

/** What calls are made with. */
export interface Books {
  readonly callers: GatewayCallers["Service"]
  readonly ledger: Ledger["Service"]
}

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
  const { request, inputTokens, mostInputTokens } = asked
  const clock = yield* Clock.Clock
  const { upstreams, maxTokens } = yield* able(model, request, call.upstreams)
  const longest = (upstream: LiveUpstream) => Math.min(maxTokens, upstream.settings.limits.outputTokens)
  const mostNanoUsd = Math.max(
    ...upstreams.map((upstream) =>
      costOf(upstream.settings, {
        input: mostInputTokens(upstream.settings.limits.imageTokens),
        cachedInput: 0,
        output: longest(upstream)
      })
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
    .pipe(Effect.mapError(notHeld))

  const made: Array<Made> = []
  let begun: Begun | undefined
  /** Until something else is known, it is the client who ended it. */
  let status = 499
  const usageOf = ({ counter }: Try): Usage =>
    counter.progress.usage ?? { input: inputTokens, cachedInput: 0, output: counter.progress.outputTokens }
  const isPaid = ({ sent, refused }: Try) => sent && !refused
  const costOfTry = (one: Try) => costOf(one.upstream.settings, usageOf(one))
  const holdAnother = Effect.suspend(() => {
    const failed = made.at(-1)
    return failed === undefined || !isPaid(failed)
      ? Effect.void
      : Effect.mapError(reservation.extend(costOfTry(failed)), notHeld)
  })
  const outcome = (): CallOutcome => {
    const paid = made.filter(isPaid)
    const used = paid.map((one) => ({ one, usage: usageOf(one) }))
    const sum = (amount: (of: (typeof used)[number]) => number) =>
      used.reduce((total, of) => total + amount(of), 0)
    return {
      inputTokens: sum(({ usage }) => usage.input),
      outputTokens: sum(({ usage }) => usage.output),
      estimated: paid.some(({ counter }) => counter.progress.usage === undefined),
      costNanoUsd: sum(({ one }) => costOfTry(one)),
      status,
      upstream: made.at(-1)?.upstream.settings.name ?? null,
      latencyMs: clock.currentTimeMillisUnsafe() - startedMs
    }
  }
  yield* reservation.sent(outcome)
  // A trial of an upstream that was left before it told anything.
  yield* Effect.addFinalizer(() => Effect.sync(() => made.at(-1)?.pass.ended()))

  const stopped = yield* Deferred.make<never, CallFailed>()
  const stop = (why: CallFailed) =>
    Effect.suspend(() => {
      // An answer that has come to its end was one, whether or not its client read all of it.
      if (status !== 200) status = why.status
      begun?.exchange.stop(why)
      return Effect.andThen(Deferred.fail(stopped, why), reservation.settle(outcome()))
    })
  yield* Effect.forkScoped(Effect.flatMap(callers.ended(caller), (why) => stop(ends[why])))

  const failed = (failure: CallFailed) =>
    Effect.sync(() => {
      status = failure.status
    })
  const started = yield* begin(
    {
      orgId: caller.orgId,
      request,
      upstreams,
      maxTokens,
      sink,
      maxRetries: gateway.spec.maxRetries,
      timeoutMs: gateway.spec.timeoutMs,
      holdAnother
    },
    made
  ).pipe(Effect.raceFirst(Deferred.await(stopped)), Effect.tapError(failed))
  begun = started
  const last = made.at(-1)
  if (last === undefined) return yield* unavailable
  const { upstream, pass } = last
  status = 499
  yield* Effect.forkScoped(watch(started, upstream, startedMs, stop))

  const more = started.more.pipe(
    Effect.tap((goesOn) => {
      if (goesOn) return Effect.void
      status = 200
      pass.succeeded()
      return showBreaker(upstream, clock.currentTimeMillisUnsafe())
    }),
    Effect.tapError((failure) =>
      Effect.andThen(
        failed(failure),
        // One that takes too long may do so because of its client.
        failure.status >= 500 && failure !== tooLong ? blame(made, "call") : Effect.void
      )
    )
  )
  return {
    more,
    usage: () => usageOf(last),
    isComplete: () => started.counter.progress.done,
    stopped: Effect.ignore(Deferred.await(stopped))
  }
})

const notHeld = (error: BudgetUsedUp | GatewayGone | StoreUnavailable): CallFailed => {
  switch (error._tag) {
    case "BudgetUsedUp":
      return callFailed(402, "budget_exceeded", error.message)
    case "GatewayGone":
      return callFailed(404, "gateway_not_found", error.message)
    case "StoreUnavailable":
      return unavailable
  }
}

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
