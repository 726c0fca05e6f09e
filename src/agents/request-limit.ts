/** How often strangers may ask the authorization server. The limits hold across processes. */
import * as Effect from "effect/Effect"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { networkOf } from "#src/access/caller-address.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { TooManyRequests } from "./errors.ts"
import { withPatience } from "./patience.ts"
import { settings } from "./settings.ts"

/** Of what leaves a row for ten minutes: from all strangers together, and from each person who is signed in. */
const pendingPerMinute = 1_000
const pendingOfPerson = 60
/** From one network, of requests for which we ask a host that a stranger named. */
const documentsPerMinute = 30

export const requestLimit = Effect.gen(function* () {
  const limits = yield* RateLimits
  const { rateLimit } = yield* settings
  const take = Effect.fnUntraced(function* (bucket: string, perMinute: number) {
    const { allowed, retryAfter } = yield* withPatience(limits.take(`agents:${bucket}`, perMinute))
    if (allowed) return
    return yield* new TooManyRequests({
      message: `Too many requests; try again in ${retryAfter} s`,
      retryAfter
    })
  })
  const network = Effect.map(CurrentRequest, ({ address }) => networkOf(address ?? "unknown"))
  return {
    fromNetwork: Effect.flatMap(network, (from) => take(from, rateLimit)),
    ofDocuments: Effect.flatMap(network, (from) => take(`documents:${from}`, documentsPerMinute)),
    /** Of requests that will wait for a decision, wherever they come from. */
    pending: (userId: string | undefined) =>
      userId === undefined ? take("pending", pendingPerMinute) : take(`pending:${userId}`, pendingOfPerson)
  }
})
