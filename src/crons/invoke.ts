/** One attempt of a run: a signed request to the app, or a message to a queue. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { answered } from "#src/engine/answered.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { signed } from "#src/outbound/signature.ts"
import { Messages } from "#src/queues/Messages.ts"
import { storableText } from "#src/storable.ts"
import { type Claimed, DueRuns, type Result } from "./DueRuns.ts"
import type { Attempt } from "./run.ts"

/** An app that sleeps is woken first. */
const wakeMs = 40_000
/** Bytes of the signed body. */
const longestEnvelope = 128_000

interface Ending {
  readonly statusCode: number | null
  readonly durationMs: number
  /** Null: it went well. */
  readonly error: string | null
  readonly again: boolean
  readonly timedOut?: boolean
  /** Seconds that the app asks to wait. */
  readonly wait?: number | undefined
}

/** Makes the attempt that was claimed; what it came to goes to the store. */
export const invoke = Effect.fnUntraced(function* (claimed: Claimed) {
  const { target } = claimed.spec
  // When it was claimed, by the clock of the store: that of this machine may be wrong, and apps refuse what is too old.
  const startedAt = Math.floor(claimed.scheduledAt.getTime() + claimed.lateBy)
  const since = yield* Clock.currentTimeNanos
  const elapsed = Effect.map(Clock.currentTimeNanos, (now) => Math.round(Number(now - since) / 1e6))
  const ended =
    target.kind === "http"
      ? yield* call(claimed, target, startedAt, elapsed)
      : yield* publish(claimed, target.queue, elapsed)
  const ending: Ending = { ...ended, error: ended.error === null ? null : storableText(ended.error) }
  const attempt: Attempt = {
    startedAt: new Date(startedAt).toISOString(),
    durationMs: Math.round(ending.durationMs),
    statusCode: ending.statusCode,
    error: ending.error
  }
  return resultOf(claimed, attempt, ending)
})

/** The body of an invocation. `id` is the same for all attempts of a run. */
const envelopeOf = ({ id, cronUid, cronName, scheduledAt, attempt, spec }: Claimed, now: number) =>
  JSON.stringify({
    id,
    type: "cron.invocation",
    cron: { id: cronUid, name: cronName },
    scheduledAt: scheduledAt.toISOString(),
    attempt,
    maxAttempts: spec.retry.maxAttempts,
    deadlineAt: new Date(now + spec.timeoutSeconds * 1000).toISOString(),
    body: spec.target.body ?? null
  })

const refused = (error: string): Ending => ({ statusCode: null, durationMs: 0, error, again: false })

const call = Effect.fnUntraced(function* (
  claimed: Claimed,
  target: { readonly path: string; readonly method: "POST" | "PUT" | "PATCH" },
  now: number,
  elapsed: Effect.Effect<number>
) {
  const outbound = yield* Outbound
  const invocations = yield* Invocations
  const place = yield* invocations
    .callable(claimed.orgId, claimed.environmentUid)
    .pipe(answered("tell where the app answers", wakeMs), Effect.result)
  if (place._tag === "Failure") return { ...refused(place.failure.message), again: true }
  const { origin, isWithheld, isOwn, secrets } = place.success
  if (isWithheld)
    return refused("The app is of a fork, and its commit is not approved: nothing is sent to it")
  if (origin === undefined) {
    return refused("The environment has no origin: say where its app answers (svc environments origin)")
  }
  const body = envelopeOf(claimed, now)
  if (Buffer.byteLength(body) > longestEnvelope) {
    return refused(`The invocation would be longer than ${longestEnvelope} bytes`)
  }
  return yield* outbound
    .post({
      url: origin + target.path,
      isOwn,
      method: target.method,
      headers: {
        "content-type": "application/json",
        ...signed(secrets, { id: claimed.id, timestampSeconds: now / 1000, body })
      },
      body,
      timeoutMs: claimed.spec.timeoutSeconds * 1000,
      maxAnswerBytes: 1_024
    })
    .pipe(
      Effect.map(({ status, headers, durationMs }): Ending => {
        const good = status >= 200 && status < 300
        const again = status === 408 || status === 429 || status >= 500
        const wait = Number(headers["retry-after"])
        return {
          statusCode: status,
          durationMs,
          error: good ? null : `The app answered ${status}`,
          again,
          wait: again && Number.isFinite(wait) ? wait : undefined
        }
      }),
      Effect.catchTags({
        OutboundRefused: ({ message }) => Effect.succeed(refused(message)),
        OutboundFailed: ({ message, reason }) =>
          Effect.map(
            elapsed,
            (durationMs): Ending => ({
              statusCode: null,
              durationMs,
              error: message,
              again: true,
              timedOut: reason === "timeout"
            })
          )
      })
    )
})

/** What is published is the job's body. The key keeps a second attempt from publishing it twice. */
const publish = Effect.fnUntraced(function* (
  { orgId, environmentUid, id, spec, attempt }: Claimed,
  queue: string,
  elapsed: Effect.Effect<number>
) {
  const due = yield* DueRuns
  const messages = yield* Messages
  const published = yield* Effect.result(
    Effect.gen(function* () {
      const uid = yield* due.queue(orgId, environmentUid, queue)
      if (uid === undefined) return 0
      const message = {
        body: JSON.stringify(spec.target.body ?? null),
        delaySeconds: 0,
        key: `cron-run:${id}`
      }
      const actor = {
        principal: "system",
        credential: "none",
        operation: "crons.run",
        requestId: `${id}/${attempt}`,
        address: null,
        outcome: 202
      }
      return (yield* messages.publish(orgId, uid, [message], actor)).length
    }).pipe(Effect.timeout(spec.timeoutSeconds * 1000))
  )
  const durationMs = yield* elapsed
  if (published._tag === "Failure") {
    const timedOut = published.failure._tag === "TimeoutError"
    const error = timedOut ? "The queue did not take it in time" : published.failure.message
    return { ...refused(error), durationMs, again: true, timedOut }
  }
  return published.success > 0
    ? { statusCode: null, durationMs, error: null, again: false }
    : { ...refused(`There is no queue "${queue}" in the environment of the cron job`), durationMs }
})

/** Exponential between the two bounds; a little jitter keeps jobs that failed together apart. */
export const retryDelay = (
  { initialDelaySeconds, maxDelaySeconds }: Claimed["spec"]["retry"],
  attempt: number,
  random: number,
  wait = 0
): number =>
  Math.min(maxDelaySeconds, Math.max(initialDelaySeconds * 2 ** (attempt - 1) * (1 + random / 10), wait))

const resultOf = (claimed: Claimed, attempt: Attempt, ending: Ending): Result => {
  const attempts = [...claimed.attempts, attempt]
  const base = { claimed, attempts, delay: 0 }
  if (ending.error === null) return { ...base, status: "succeeded", reason: null }
  const { retry } = claimed.spec
  if (ending.again && claimed.attempt < retry.maxAttempts) {
    const delay = retryDelay(retry, claimed.attempt, Math.random(), ending.wait)
    return { ...base, status: "running", reason: null, delay }
  }
  return { ...base, status: ending.timedOut === true ? "timed_out" : "failed", reason: ending.error }
}
