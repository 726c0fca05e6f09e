/** How limits of rate look in answers (IETF draft "RateLimit header fields for HTTP"). */
import type { Taken } from "#src/access/RateLimits.ts"
import { type Problem, problem } from "./problem.ts"

type Told = Pick<Taken, "limit" | "remaining" | "retryAfter">

/** RateLimit and RateLimit-Policy header fields; `policy` names what is counted. */
export const limitHeaders = (policy: string, taken: Told, windowSeconds = 60): Record<string, string> => ({
  ratelimit: `"${policy}";r=${taken.remaining};t=${taken.retryAfter}`,
  "ratelimit-policy": `"${policy}";q=${taken.limit};w=${windowSeconds}`
})

export const tooMany = (policy: string, taken: Told, windowSeconds = 60): Problem =>
  problem(429, "rate_limited", `Too many requests; try again in ${taken.retryAfter} s`, {
    headers: { ...limitHeaders(policy, taken, windowSeconds), "retry-after": String(taken.retryAfter) }
  })
