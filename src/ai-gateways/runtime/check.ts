/** Asks each upstream for a few words, as whoever operates the control plane does before users rely on it. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { AiModel } from "#schemas/ai-gateway.ts"
import { attempt, newTry } from "./attempt.ts"
import { makeCancellation } from "./cancellation.ts"
import type { Sink } from "./dialects/dialect.ts"
import { CallFailed } from "./failure.ts"
import { type LiveUpstream, Upstreams } from "./Upstreams.ts"

export interface Checked {
  readonly model: AiModel
  readonly upstream: string
  /** Until its answer had begun. */
  readonly milliseconds: number
  /** What is wrong; undefined: it answers, and says what it used. */
  readonly wrong: string | undefined
}

const patience = "30 seconds"
const atOnce = 8
const outputTokens = 16
const request = { model: "", messages: [{ role: "user", content: "Say: ready" }] } as const
const ignored: Sink = { delta: () => {}, finish: () => {}, usage: () => {}, done: () => {} }

export const checkUpstreams: Effect.Effect<ReadonlyArray<Checked>, never, Upstreams> = Effect.flatMap(
  Upstreams,
  ({ all }) => Effect.forEach(all, checkOne, { concurrency: atOnce })
)

const checkOne = Effect.fnUntraced(function* (upstream: LiveUpstream) {
  const started = yield* Clock.currentTimeMillis
  let begun = started
  const asked = Effect.gen(function* () {
    const { more, counter } = yield* attempt(
      newTry(upstream, ignored, makeCancellation()),
      request,
      Math.min(outputTokens, upstream.settings.limits.outputTokens)
    )
    begun = yield* Clock.currentTimeMillis
    while (yield* more) {}
    return counter.progress.usage === undefined ? "it does not say what it used" : undefined
  }).pipe(
    Effect.scoped,
    Effect.catch((error) => {
      const { code, message } = error instanceof CallFailed ? error : error.failure
      return Effect.succeed(`${code}: ${message}`)
    }),
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.succeed(`it did not answer within ${patience}`)
    })
  )
  const wrong = yield* asked
  return {
    model: upstream.neutralModel,
    upstream: upstream.settings.name,
    milliseconds: begun - started,
    wrong
  }
})
