/** Answers of the authorization server to programs: JSON that no cache keeps, and that pages of any site may read. */
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { TokenRefused, TooManyRequests } from "../errors.ts"

/** No endpoint here looks at cookies, so what a page of another site can read, anybody can. */
const anyOrigin = { "access-control-allow-origin": "*" }

export const json = (body: object, status = 200, headers: Readonly<Record<string, string>> = {}) =>
  HttpServerResponse.jsonUnsafe(body, {
    status,
    headers: { "cache-control": "no-store", ...anyOrigin, ...headers }
  })

/** To a browser that asks what pages of other sites may send (Fetch, CORS preflight). */
export const preflight = HttpServerResponse.empty({
  status: 204,
  headers: {
    ...anyOrigin,
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": "authorization, content-type, mcp-protocol-version",
    "access-control-max-age": "3600"
  }
})

const failure = (
  status: number,
  error: string,
  message: string,
  headers: Readonly<Record<string, string>> = {}
) => json({ error, error_description: message }, status, headers)

/**
 * RFC 6749, section 5.2. A store that is away and too many requests are no errors of the RFC, and by no means
 * `invalid_grant`: on that, programs throw their sign-in away.
 */
export const failureAnswer = (
  fault: TokenRefused | TooManyRequests | StoreUnavailable
): HttpServerResponse.HttpServerResponse => {
  switch (fault._tag) {
    case "TokenRefused":
      return failure(400, fault.error, fault.message)
    case "TooManyRequests":
      return failure(429, "temporarily_unavailable", fault.message, {
        "retry-after": String(fault.retryAfter)
      })
    case "StoreUnavailable":
      return failure(503, "temporarily_unavailable", "The service cannot answer now; try again shortly", {
        "retry-after": "2"
      })
  }
}
