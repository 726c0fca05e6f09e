/**
 * Whom the edge lets through to an environment that is not for everybody, where there is no valid ticket: calls of the
 * platform by their signature, and browsers that have a visit, whose ticket is renewed on the way. Other browsers go to
 * sign in and come back to `/.svc/access` with a code; programs are told that they have to, without a redirect.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Semaphore from "effect/Semaphore"
import { AppConfig } from "#src/config.ts"
import { type EdgeAnswer, type Forward, Gate, type GatedRequest } from "#src/edge/agent/Gate.ts"
import { ticketKey } from "#src/edge/ticket-key.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { isSigned, maySign } from "#src/outbound/signature.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { cookieOf, setCookie, stateCookie, ticketCookie, visitCookie, withTicket } from "./cookies.ts"
import { returnPath } from "./return-path.ts"
import { makeTicket, type Person, ticketSeconds } from "./tickets.ts"
import { challengeOf, isState, newState, Visits, visitSeconds } from "./Visits.ts"

/** Questions to the store at a time; whoever comes beyond the line, or waits for too long, is told to come again. */
const atOnce = 32
const longestLine = 500
const patience = "10 seconds"
/** Of the body of a signed call, in bytes, and how long it may take to come. */
const longestCall = 4 * 1024 * 1024
const callPatience = "10 seconds"
/** Bodies that are read at a time. */
const callsAtOnce = 64
/** Seconds that a browser may take to sign in. */
const stateSeconds = 1_800

const answer = (
  status: number,
  body: string,
  headers: Readonly<Record<string, string | ReadonlyArray<string>>> = {}
): EdgeAnswer => ({
  _tag: "Answer",
  status,
  headers: {
    "cache-control": "no-store",
    "content-type": "text/plain; charset=utf-8",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    ...headers
  },
  body
})

const tooLong = answer(413, `A signed call has at most ${longestCall} bytes.\n`)
const unsigned = answer(401, "The signature does not hold.\n")
const unavailable = answer(503, "This cannot be answered now. Try again shortly.\n", { "retry-after": "2" })

/** A browser that goes to a page, as opposed to what a page or a program fetches. */
const isNavigation = ({ method, headers, upgrade }: GatedRequest): boolean => {
  if ((method !== "GET" && method !== "HEAD") || upgrade) return false
  const mode = headers["sec-fetch-mode"]
  return mode === undefined ? /\btext\/html\b/i.test(headers.accept ?? "") : mode === "navigate"
}

/**
 * Bounds the bodies of calls that are in memory at once. Anybody may send one that is signed by nobody, and slowly; those
 * of the platform come at once. So when there are too many, the oldest of the environment with the most is given up.
 */
const makeCalls = () => {
  const calls = new Map<string, Set<Deferred.Deferred<EdgeAnswer>>>()
  let reading = 0
  const end = (environmentUid: string, call: Deferred.Deferred<EdgeAnswer>) => {
    const own = calls.get(environmentUid)
    if (own?.delete(call) !== true) return
    reading -= 1
    if (own.size === 0) calls.delete(environmentUid)
  }
  const giveUpOne = () => {
    const [uid, most] = [...calls].reduce((one, other) => (other[1].size > one[1].size ? other : one))
    for (const oldest of [...most].slice(0, 1)) {
      Deferred.doneUnsafe(oldest, Exit.succeed(unavailable))
      end(uid, oldest)
    }
  }
  return <A>(environmentUid: string, self: Effect.Effect<A>): Effect.Effect<A | EdgeAnswer> =>
    Effect.suspend(() => {
      if (reading >= callsAtOnce) giveUpOne()
      const givenUp = Deferred.makeUnsafe<EdgeAnswer>()
      calls.set(environmentUid, (calls.get(environmentUid) ?? new Set()).add(givenUp))
      reading += 1
      return Effect.raceFirst(self, Deferred.await(givenUp)).pipe(
        Effect.ensuring(Effect.sync(() => end(environmentUid, givenUp)))
      )
    })
}

export const layer = Layer.effect(
  Gate,
  Effect.gen(function* () {
    const visits = yield* Visits
    const invocations = yield* Invocations
    const { publicUrl } = yield* AppConfig
    const key = yield* ticketKey
    const turns = yield* Semaphore.make(atOnce)
    const asCall = makeCalls()
    let line = 0

    /** Bounds what is asked of the store at once, and answers for it when it cannot be asked. */
    const inTurn = <A>(self: Effect.Effect<A, StoreUnavailable>): Effect.Effect<A | EdgeAnswer> =>
      Effect.suspend(() => {
        if (line >= longestLine) return Effect.succeed(unavailable)
        line += 1
        return turns
          .withPermits(1)(self)
          .pipe(
            Effect.timeoutOption(patience),
            Effect.map(Option.getOrElse((): A | EdgeAnswer => unavailable)),
            Effect.ensuring(Effect.sync(() => (line -= 1))),
            Effect.catchTag("StoreUnavailable", () => Effect.succeed(unavailable))
          )
      })

    const ticketFor = Effect.fnUntraced(function* (
      { orgId, environmentUid, host }: Pick<GatedRequest, "orgId" | "environmentUid" | "host">,
      person: Person | undefined
    ) {
      const { secrets } = yield* invocations.recentTarget(orgId, environmentUid)
      const nowSeconds = Math.floor((yield* Clock.currentTimeMillis) / 1000)
      return makeTicket(key, { host, environmentUid, person, secrets, nowSeconds })
    })

    /** A call of the platform goes on with a ticket that names nobody. */
    const signedCall = Effect.fnUntraced(function* (request: GatedRequest, signature: string) {
      const body = yield* request
        .body(longestCall)
        .pipe(Effect.timeoutOption(callPatience), Effect.map(Option.getOrUndefined))
      if (body === undefined) return tooLong
      return yield* inTurn(
        Effect.gen(function* () {
          const { secrets } = yield* invocations.recentTarget(request.orgId, request.environmentUid)
          const nowSeconds = (yield* Clock.currentTimeMillis) / 1000
          if (!isSigned(secrets, signature, body, nowSeconds)) return unsigned
          const ticket = yield* ticketFor(request, undefined)
          const cookie = withTicket(request.headers.cookie, ticket)
          const forward: Forward = { _tag: "Forward", cookie, body }
          return forward
        })
      )
    })

    /** Undefined: the browser has no visit that holds. */
    const renewed = Effect.fnUntraced(function* (request: GatedRequest, cookie: string) {
      const visit = Option.getOrUndefined(yield* visits.find(cookie, request.host))
      if (visit === undefined || visit.environmentUid !== request.environmentUid) return undefined
      const ticket = yield* ticketFor(request, visit)
      const forward: Forward = {
        _tag: "Forward",
        cookie: withTicket(request.headers.cookie, ticket),
        setCookies: [setCookie(ticketCookie, ticket, ticketSeconds)]
      }
      return forward
    })

    /** To the platform, which the browser comes back from with a code for the cookie that it is given here. */
    const leave = (request: GatedRequest): EdgeAnswer => {
      const kept = Option.filter(cookieOf(request.headers.cookie, stateCookie), isState)
      // Tabs that set out together come back one by one.
      const state = Option.match(kept, { onNone: newState, onSome: (text) => Redacted.make(text) })
      const to = new URL(`${publicUrl}/access`)
      to.searchParams.set("host", request.host)
      to.searchParams.set("state", challengeOf(state))
      to.searchParams.set("return", returnPath(request.url))
      return answer(302, "Sign in to see this.\n", {
        location: to.href,
        "set-cookie": [setCookie(stateCookie, state, stateSeconds)]
      })
    }

    const signInFirst = answer(401, "You have to sign in to see this.\n", {
      "www-authenticate": `Svc-Access realm="${new URL(publicUrl).origin}"`
    })

    return {
      judge: Effect.fnUntraced(function* (request) {
        const { headers, environmentUid } = request
        const signature = headers["svc-signature"]
        if (typeof signature === "string") {
          const nowSeconds = (yield* Clock.currentTimeMillis) / 1000
          if (!maySign(signature, nowSeconds)) return unsigned
          return yield* asCall(environmentUid, signedCall(request, signature))
        }
        const cookie = Option.getOrUndefined(cookieOf(headers.cookie, visitCookie))
        const known = cookie === undefined ? undefined : yield* inTurn(renewed(request, cookie))
        return known ?? (isNavigation(request) ? leave(request) : signInFirst)
      }),
      own: (request) =>
        inTurn(
          Effect.gen(function* () {
            const at = request.url.indexOf("?")
            const path = at === -1 ? request.url : request.url.slice(0, at)
            // Over plain HTTP a code would be anybody's.
            if (path !== "/.svc/access" || request.method !== "GET" || request.scheme !== "https")
              return answer(404, "There is nothing here.\n")
            const code = new URLSearchParams(at === -1 ? "" : request.url.slice(at + 1)).get("code") ?? ""
            const state = Option.getOrElse(cookieOf(request.headers.cookie, stateCookie), () => "")
            const redeemed = Option.getOrUndefined(yield* visits.redeem(code, { host: request.host, state }))
            if (redeemed === undefined) return answer(400, overPage, { ...pageHeaders })
            const { visit, cookie, returnPath: path_ } = redeemed
            const place = { orgId: visit.orgId, environmentUid: visit.environmentUid, host: request.host }
            const ticket = yield* ticketFor(place, visit)
            return answer(303, "You are signed in.\n", {
              location: returnPath(path_),
              "set-cookie": [
                setCookie(ticketCookie, ticket, ticketSeconds),
                // The state stays: other tabs that set out with it have yet to come back.
                setCookie(visitCookie, cookie, visitSeconds)
              ]
            })
          })
        )
    }
  })
)

const pageHeaders = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
  "x-frame-options": "DENY"
}
const overPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Signing in did not work</title>
<h1>Signing in did not work</h1>
<p>The way back was used already, took too long, or began in another browser.</p>
<p><a href="/">Go on</a></p>
</html>
`
