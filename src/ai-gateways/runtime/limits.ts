/**
 * How many calls a gateway and a key may make: a minute, over all processes, and at once, in this one. Told in the
 * header fields that OpenAI's API has for it.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { RateLimits, type Taken } from "#src/access/RateLimits.ts"
import { settings } from "../settings.ts"
import { type CallFailed, callFailed } from "./failure.ts"

export interface Counted {
  /** The resource's uid. */
  readonly gateway: string
  readonly keyId: string | null
}

export const makeLimits = Effect.gen(function* () {
  const rates = yield* RateLimits
  const most = yield* settings
  const running = new Map<string, number>()
  const add = (key: string, by: number) => {
    const now = (running.get(key) ?? 0) + by
    if (now > 0) running.set(key, now)
    else running.delete(key)
  }

  const place = ({ gateway, keyId }: Counted): Effect.Effect<void, CallFailed, Scope.Scope> => {
    const counted = [
      { what: "gateway", key: `gateway ${gateway}`, limit: most.gatewayConcurrency },
      ...(keyId === null ? [] : [{ what: "key", key: `key ${keyId}`, limit: most.keyConcurrency }])
    ]
    const take = Effect.suspend(() => {
      const full = counted.find(({ key, limit }) => (running.get(key) ?? 0) >= limit)
      if (full !== undefined) {
        return Effect.fail(
          callFailed(
            429,
            "too_many_calls",
            `The ${full.what} makes ${full.limit} calls at once already, which is as many as it may`,
            { again: true, retryAfter: 1 }
          )
        )
      }
      for (const { key } of counted) add(key, 1)
      return Effect.void
    })
    return Effect.acquireRelease(take, () =>
      Effect.sync(() => {
        for (const { key } of counted) add(key, -1)
      })
    )
  }

  const token = Effect.fnUntraced(function* ({ gateway, keyId }: Counted) {
    const taken = [yield* rates.take(`ai-gateway ${gateway}`, most.gatewayRate)]
    if (keyId !== null && taken[0]?.allowed === true) {
      taken.push(yield* rates.take(`ai-key ${keyId}`, most.keyRate))
    }
    const tightest = taken.reduce((a, b) => (!b.allowed || b.remaining < a.remaining ? b : a))
    const headers = headersOf(tightest)
    if (tightest.allowed) return headers
    return yield* callFailed(
      429,
      "rate_limit_exceeded",
      `At most ${tightest.limit} calls a minute may be made; try again in ${tightest.retryAfter} s`,
      { again: true, retryAfter: tightest.retryAfter, headers }
    )
  })

  /** Holds a place until the scope closes, and answers header fields. */
  return (counted: Counted) => Effect.andThen(place(counted), token(counted))
})

const headersOf = ({ limit, remaining, retryAfter }: Taken): Readonly<Record<string, string>> => ({
  "x-ratelimit-limit-requests": String(limit),
  "x-ratelimit-remaining-requests": String(remaining),
  "x-ratelimit-reset-requests": `${retryAfter}s`
})
