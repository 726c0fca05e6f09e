/**
 * The page that a protected host sends a browser to. Whoever is signed in and may see what is there goes back with a code:
 * members of the organization at once, others after they have agreed to being known there. The address to go back to is
 * made of a host name that the edge serves and a path; nothing else that a request names is ever gone to.
 */
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { visitorPaths } from "#src/api/page-paths.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { type HandlersOf, pageRoutes, somebody } from "#src/identity/pages/handling.ts"
import { posted } from "#src/identity/pages/posted.ts"
import type { Session } from "#src/identity/Sessions.ts"
import { returnPath } from "../return-path.ts"
import { type Destination, isChallenge, Visits, type Way } from "../Visits.ts"
import * as views from "./views.ts"

const wayOf = (get: (name: string) => string | null): Way | undefined => {
  const [host, challenge] = [get("host"), get("state")]
  return host === null || challenge === null || !isChallenge(challenge)
    ? undefined
    : { host, challenge, returnPath: returnPath(get("return")) }
}

/** This page, for whoever has to sign in first. */
const hereFor = ({ host, challenge, returnPath }: Way) =>
  `/access?${new URLSearchParams({ host, state: challenge, return: returnPath })}`

const leaveFor = (url: string) =>
  HttpServerResponse.redirect(url, {
    status: 303,
    headers: { "cache-control": "no-store", "referrer-policy": "no-referrer" }
  })

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const visits = yield* Visits
    const sites = yield* EdgeSites
    const signedIn = yield* somebody

    const urlWith = ({ host }: Destination, code: Redacted.Redacted) =>
      `${sites.urlOf(host)}/.svc/access?code=${Redacted.value(code)}`

    const issue = ({ id, userId }: Session, way: Way) => visits.issueCode({ id, userId }, way)

    const handlers: HandlersOf<typeof visitorPaths> = {
      "GET /access": Effect.fnUntraced(function* (query) {
        const way = wayOf((name) => query.get(name))
        if (way === undefined) return views.lost
        const session = yield* signedIn(hereFor(way))
        const destination = Option.getOrUndefined(yield* visits.destination(way.host, session.userId))
        if (destination === undefined) return views.unknown
        if (!destination.allowed) return views.refused(destination, session, hereFor(way))
        if (!destination.member) return views.confirm(destination, way, session, hereFor(way))
        const code = yield* issue(session, way)
        return Option.match(code, {
          onNone: () => views.refused(destination, session, hereFor(way)),
          onSome: (made) => leaveFor(urlWith(destination, made))
        })
      }),
      "POST /access": Effect.fnUntraced(function* () {
        const form = yield* posted
        const way = wayOf(form.text)
        if (way === undefined) return views.lost
        const session = yield* signedIn(hereFor(way))
        const destination = Option.getOrUndefined(yield* visits.destination(way.host, session.userId))
        if (destination === undefined) return views.unknown
        // The page may have been shown to somebody else, who has signed out in another window since.
        if (form.text("user") !== session.userId)
          return views.confirm(destination, way, session, hereFor(way), true)
        const code = destination.allowed ? yield* issue(session, way) : Option.none()
        return Option.match(code, {
          onNone: () => views.refused(destination, session, hereFor(way)),
          onSome: (made) => views.goingOn(destination, urlWith(destination, made))
        })
      })
    }
    return pageRoutes(visitorPaths, handlers)
  })
)
