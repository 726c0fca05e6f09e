/** What a request tells of its sender before anybody knows who it is, and the cookies that say it later. */
import * as Effect from "effect/Effect"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { credentialOf, sessionCookie } from "#src/access/Access.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import type { Entry } from "./visitor.ts"

/** The digest of the session cookie, if it looks like one. Sign-in looks at cookies only, never at `Authorization`. */
export const cookieDigest = (request: HttpServerRequest.HttpServerRequest): Buffer | null =>
  Option.match(credentialOf(undefined, request.cookies[sessionCookie]), {
    onNone: () => null,
    onSome: ({ digest }) => digest
  })

export const entryOf = Effect.gen(function* () {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { id, address } = yield* CurrentRequest
  const entry: Entry = {
    visitor: { address, userAgent: request.headers["user-agent"] ?? null, requestId: id },
    before: cookieDigest(request)
  }
  return entry
})

/** A page on loopback has no TLS, and browsers keep `Secure` cookies of some such hosts only. */
export const isSecure = (publicUrl: string): boolean => {
  const { protocol, hostname } = new URL(publicUrl)
  return protocol === "https:" || !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname)
}

/**
 * As long as browsers keep any cookie (RFC 6265bis). How long the session lives is up to the store, where each use
 * moves its end: a cookie that ended by itself would end it for whoever is there every day.
 */
const cookieSeconds = 400 * 24 * 3600

export const withSession =
  (token: Redacted.Redacted, secure: boolean) => (response: HttpServerResponse.HttpServerResponse) =>
    HttpServerResponse.setCookieUnsafe(response, sessionCookie, Redacted.value(token), {
      path: "/",
      httpOnly: true,
      sameSite: "lax",
      secure,
      maxAge: cookieSeconds * 1000
    })

export const withoutSession = (secure: boolean) => (response: HttpServerResponse.HttpServerResponse) =>
  HttpServerResponse.setCookieUnsafe(response, sessionCookie, "", {
    path: "/",
    httpOnly: true,
    sameSite: "lax",
    secure,
    maxAge: 0
  })

/**
 * A path of ours to go on to. Whatever could lead elsewhere (another host, a scheme, a backslash that browsers read
 * as a slash) becomes `fallback`.
 */
export const safeNext = (next: string | null | undefined, fallback = "/account"): string =>
  next !== null &&
  next !== undefined &&
  next.length <= 1_000 &&
  /^\/(?![/\\])[\x21-\x5b\x5d-\x7e]*$/.test(next)
    ? next
    : fallback
