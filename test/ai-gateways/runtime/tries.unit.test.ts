/** Tries of an upstream that never answers, on a clock that is moved. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Redacted from "effect/Redacted"
import { TestClock } from "effect/testing"
import type { Dispatcher } from "undici"
import { makeBreaker } from "#src/ai-gateways/runtime/breaker.ts"
import { makeCancellation } from "#src/ai-gateways/runtime/cancellation.ts"
import { openai } from "#src/ai-gateways/runtime/dialects/openai.ts"
import { startExchange } from "#src/ai-gateways/runtime/exchange.ts"
import { begin, type Made, timedOut } from "#src/ai-gateways/runtime/tries.ts"
import type { LiveUpstream } from "#src/ai-gateways/runtime/Upstreams.ts"

const ignored = { delta: () => {}, finish: () => {}, usage: () => {}, done: () => {} }
const request = { model: "svc/fast", messages: [{ role: "user", content: "hello" }] } as const

const silent = (dispatch: Dispatcher["dispatch"]): LiveUpstream => ({
  neutralModel: "svc/fast",
  settings: {
    name: "silent",
    dialect: "openai",
    address: "http://127.0.0.1:1",
    model: "real",
    key: Redacted.make("none"),
    prices: { input: 1, output: 1 },
    limits: {
      outputTokens: 10,
      concurrency: 10,
      idleSeconds: 60,
      totalSeconds: 900,
      beginSeconds: 30,
      imageTokens: 0
    },
    maxTokensField: "max_tokens",
    imageUrls: false
  },
  dialect: openai,
  breaker: makeBreaker(),
  key: "none",
  active: () => 0,
  start: (asked, sent) =>
    startExchange(
      { dispatch },
      asked,
      () => 0,
      sent,
      () => {}
    )
})

const connecting = silent(() => true)
const connected = silent((_, handler) => {
  handler.onRequestStart?.({ abort: () => {}, pause: () => {}, resume: () => {} } as never, {})
  return true
})

const beginning = (
  upstream: LiveUpstream,
  maxRetries = 0,
  holdAnother: Effect.Effect<void> = Effect.void
) => {
  const made: Array<Made> = []
  const cancellation = makeCancellation()
  const tries = {
    orgId: "org",
    request,
    upstreams: [upstream],
    maxTokens: 10,
    sink: ignored,
    maxRetries,
    cancellation,
    holdAnother
  }
  return { made, cancellation, failure: Effect.flip(Effect.scoped(begin(tries, made))) }
}

const broken = silent((_, handler) => {
  handler.onResponseError?.(undefined as never, new Error("refused"))
  return true
})

const call = Effect.fnUntraced(function* (upstream: LiveUpstream, timeoutMs: number) {
  const { made, cancellation, failure } = beginning(upstream)
  const under = yield* Effect.forkChild(failure)
  yield* TestClock.adjust(timeoutMs)
  cancellation.cancel(timedOut)
  return { failure: yield* Fiber.join(under), made }
})

it.effect("an upstream that was never connected to was not sent the request", () =>
  Effect.gen(function* () {
    const without = yield* call(connecting, 1_000)
    assert.deepStrictEqual([without.failure.status, without.made[0]?.sent], [504, false])
    const withOne = yield* call(connected, 1_000)
    assert.deepStrictEqual([withOne.failure.status, withOne.made[0]?.sent], [504, true])
  })
)

it.effect("a gateway's own impatience is no failure of an upstream, the operator's is", () =>
  Effect.gen(function* () {
    for (let at = 0; at < 20; at++) yield* call(connected, 29_000)
    assert.strictEqual((yield* call(connected, 1_000)).failure.code, "upstream_timeout")
    for (let at = 0; at < 5; at++) yield* call(connected, 30_000)
    assert.strictEqual((yield* call(connected, 1_000)).failure.code, "model_unavailable")
  })
)

it.effect("a call that was cancelled makes no further try, whatever it waits for", () =>
  Effect.gen(function* () {
    const paused = beginning(broken, 3)
    const pausing = yield* Effect.forkChild(paused.failure, { startImmediately: true })
    assert.strictEqual(paused.made.length, 1)
    paused.cancellation.cancel(timedOut)
    assert.strictEqual(yield* Fiber.join(pausing), timedOut)
    assert.strictEqual(paused.made.length, 1)

    const holding = beginning(broken, 3, Effect.never)
    const held = yield* Effect.forkChild(holding.failure, { startImmediately: true })
    holding.cancellation.cancel(timedOut)
    assert.strictEqual(yield* Fiber.join(held), timedOut)

    const early = beginning(connected)
    early.cancellation.cancel(timedOut)
    assert.strictEqual(yield* early.failure, timedOut)
    assert.strictEqual(early.made.length, 0)
  })
)
