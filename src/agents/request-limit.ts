/** How often strangers may ask the authorization server. The limits hold across processes. */
import * as Effect from "effect/Effect"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { networkOf } from "#src/access/caller-address.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { TooManyRequests } from "./errors.ts"
import { settings } from "./settings.ts"

/** From everywhere together, of what leaves a row for ten minutes. */
const pendingPerMinute = 1_000

export const requestLimit = Effect.gen(function* () {
  const limits = yield* RateLimits
  const { rateLimit } = yield* settings
  const take = Effect.fnUntraced(function* (bucket: string, perMinute: number) {
    const { allowed, retryAfter } = yield* limits.take(`agents:${bucket}`, perMinute)
    if (allowed) return
    return yield* new TooManyRequests({
      message: `Too many requests; try again in ${retryAfter} s`,
      retryAfter
    })
  })
  return {
    fromNetwork: Effect.flatMap(CurrentRequest, ({ address }) =>
      take(networkOf(address ?? "unknown"), rateLimit)
    ),
    /** Of requests that will wait for a decision, wherever they come from. */
    pending: take("pending", pendingPerMinute)
  }
})
