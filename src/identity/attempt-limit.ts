/** How often a stranger may try something. The limits hold across processes. */
import * as Effect from "effect/Effect"
import { digestOf } from "#src/access/Access.ts"
import { networkOf } from "#src/access/caller-address.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { AppConfig } from "#src/config.ts"
import { TooManyTries } from "./errors.ts"
import type { Entry } from "./visitor.ts"

/** Tries of one address's password in a minute, from wherever they come. A link by mail works meanwhile. */
const triesPerMinute = 10

export const attemptLimit = Effect.gen(function* () {
  const limits = yield* RateLimits
  const { signInRateLimit } = yield* AppConfig
  const take = Effect.fnUntraced(function* (bucket: string, perMinute: number) {
    const taken = yield* limits.take(`sign-in:${bucket}`, perMinute)
    if (taken.allowed) return
    return yield* new TooManyTries({
      message: `Too many tries; try again in ${taken.retryAfter} s`,
      limit: taken.limit,
      retryAfter: taken.retryAfter
    })
  })
  return {
    /** Everything that a stranger can try costs a token of the network that it comes from. */
    fromAddress: ({ visitor }: Entry) => take(networkOf(visitor.address ?? "unknown"), signInRateLimit),
    // Addresses of people do not stand in the table of buckets.
    forPerson: (email: string) => take(digestOf(email).toString("hex").slice(0, 32), triesPerMinute)
  }
})
