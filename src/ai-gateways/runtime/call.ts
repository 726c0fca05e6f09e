/**
 * A call from the moment that its request is known: it reserves the most that it can cost, is made, and is settled when
 * the request's scope closes, whatever closes it.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import type { AiModel } from "#schemas/ai-gateway.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { GatewayCaller, GatewayCallers } from "../GatewayCallers.ts"
import type { CallOutcome, Ledger } from "../Ledger.ts"
import type { BudgetUsedUp, GatewayGone } from "../ledger-batches.ts"
import { able } from "./able.ts"
import type { Begun, Try } from "./attempt.ts"
import { makeCancellation } from "./cancellation.ts"
import type { Deadlines } from "./deadlines.ts"
import type { Sink, Usage } from "./dialects/dialect.ts"
import { type CallFailed, callFailed, unavailable } from "./failure.ts"
import type { Asked } from "./request.ts"
import { begin, blame, type Made, timedOut } from "./tries.ts"
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
  /** Ends the connection of a client that does not read why its call was ended. */
  readonly dropClient: () => void
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
  readonly deadlines: Deadlines
}

/** For a client to read why its call was ended. */
const farewell = "2 seconds"

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
  { callers, ledger, deadlines }: Books,
  call: CallRequest
): Effect.fn.Return<Running, CallFailed, Scope.Scope> {
  const { caller, gateway, model, asked, startedMs, sink, dropClient } = call
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

  const scope = yield* Scope.Scope
  const run = Effect.runForkWith(yield* Effect.context())
  const cancellation = makeCancellation()
  const stop = (why: CallFailed) => {
    if (cancellation.why() !== undefined) return
    // An answer that has come to its end was one, whether or not its client read all of it.
    if (status !== 200) status = why.status
    cancellation.cancel(why)
    const rest = reservation
      .settle(outcome())
      .pipe(Effect.andThen(Effect.sleep(farewell)), Effect.andThen(Effect.sync(dropClient)))
    Fiber.runIn(run(rest), scope)
  }
  const beganMs = clock.currentTimeMillisUnsafe()
  const check = (now: number) => {
    if (begun !== undefined) {
      const why = overdue(begun, made.at(-1)?.upstream, startedMs, now)
      if (why !== undefined) stop(why)
    } else if (now >= beganMs + gateway.spec.timeoutMs) cancellation.cancel(timedOut)
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => ({
      forget: deadlines(check),
      leave: callers.onEnded(caller, (why) => stop(ends[why]))
    })),
    ({ forget, leave }) =>
      Effect.sync(() => {
        forget()
        leave()
        // A trial of an upstream that was left before it told anything.
        made.at(-1)?.pass.ended()
      })
  )

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
      cancellation,
      holdAnother
    },
    made
  ).pipe(Effect.tapError(failed))
  begun = started
  const last = made.at(-1)
  if (last === undefined) return yield* unavailable
  const { upstream, pass } = last
  status = 499

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
    isComplete: () => started.counter.progress.done
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

/** Why an answer is ended in which nothing comes any more, or that takes too long. */
const overdue = (
  { exchange }: Begun,
  upstream: LiveUpstream | undefined,
  startedMs: number,
  now: number
): CallFailed | undefined => {
  if (upstream === undefined) return undefined
  const { idleSeconds, totalSeconds } = upstream.settings.limits
  if (now >= startedMs + totalSeconds * 1_000) return tooLong
  return now >= (exchange.waitingSince() ?? now) + idleSeconds * 1_000 ? stalled : undefined
}
