/**
 * How many requests there are at once. They queue for the store's connections, each with what it holds of memory; past a
 * bound a request is refused at once instead, so that a burst of any size costs the process no more than the bounds.
 *
 * - Requests that have arrived whole are worked on, and those whose body is on its way still are not: who sends slowly
 *   keeps nobody else out but others who send.
 * - What apps send by themselves, for as many callers as they have, takes half of the places at most: people and their
 *   programs reach the platform all the same.
 * - Who hung up holds no place, even if what was begun for it has not ended yet.
 * - Whether the process is well is told under any load: whoever asks would restart it otherwise, in the middle of a burst.
 */
import type { IncomingMessage } from "node:http"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Random from "effect/Random"
import { problem, toResponse } from "./problem.ts"

export interface RequestBounds {
  /** Requests that are worked on. */
  readonly atOnce: number
  /** Requests whose body is on its way. */
  readonly arriving: number
}

/** Some seconds of what one process answers, and less than 200 MB. */
export const RequestLimit = Context.Reference<RequestBounds>("svc/api/RequestLimit", {
  defaultValue: () => ({ atOnce: 4_000, arriving: 8_000 })
})

/** Later for some than for others, so that they do not all come back at once. */
const overloaded = Effect.flatMap(Random.nextIntBetween(1, 5), (seconds) =>
  toResponse(
    problem(503, "overloaded", `Too many requests at this moment; try again in ${seconds} s`, {
      headers: { "retry-after": String(seconds) }
    })
  )
)

const always = /^\/v1\/health(\?|$)/
/** What apps and their pages send by themselves. */
const byApps = /^\/v1\/(runtime|speed-insights\/collect)\//

export type Arriving = Pick<IncomingMessage, "complete" | "headers"> & {
  readonly url?: string | undefined
  readonly socket: { readonly destroyed: boolean }
}

interface Place {
  readonly request: Arriving
  readonly ofApp: boolean
}

const hasBody = ({ headers }: Arriving) =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0"

/** Answers in place of `self` when too many others are under way. */
export const admission = Effect.map(RequestLimit, (limit) => {
  const underWay = new Set<Place>()
  let ofApps = 0

  const isFull = ({ request, ofApp }: Place) => {
    // Whatever they are doing, there is room for one more.
    const few = (count: number, share: number) => count < Math.min(limit.atOnce, limit.arriving) * share
    if (few(underWay.size, 1) && (!ofApp || few(ofApps, 1 / 2))) return false
    const working = { all: 0, ofApps: 0 }
    const arriving = { all: 0, ofApps: 0 }
    for (const place of underWay) {
      if (place.request.socket.destroyed) continue
      const count = place.request.complete ? working : arriving
      count.all++
      if (place.ofApp) count.ofApps++
    }
    const over = (count: typeof working, most: number) =>
      count.all >= most || (ofApp && count.ofApps >= most / 2)
    return over(working, limit.atOnce) || (hasBody(request) && over(arriving, limit.arriving))
  }

  return <E, R>(request: Arriving, self: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
    Effect.suspend((): typeof self => {
      const { url = "" } = request
      if (always.test(url)) return self
      const place = { request, ofApp: byApps.test(url) }
      if (isFull(place)) return overloaded
      underWay.add(place)
      if (place.ofApp) ofApps++
      return Effect.ensuring(
        self,
        Effect.sync(() => {
          underWay.delete(place)
          if (place.ofApp) ofApps--
        })
      )
    })
})
