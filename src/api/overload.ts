/**
 * How many requests are worked on at once. They queue for the store's connections, each with what it holds of memory; past
 * a bound a request is refused at once instead, so that a burst of any size costs the process no more than the bound. A
 * request whose body is on its way still does not count: who sends slowly keeps nobody else out.
 */
import type { IncomingMessage } from "node:http"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Random from "effect/Random"
import { problem, toResponse } from "./problem.ts"

/** Some seconds of what one process answers, and less than 200 MB. */
export const RequestLimit = Context.Reference<{ readonly atOnce: number }>("svc/api/RequestLimit", {
  defaultValue: () => ({ atOnce: 4_000 })
})

/** Later for some than for others, so that they do not all come back at once. */
const overloaded = Effect.flatMap(Random.nextIntBetween(1, 5), (seconds) =>
  toResponse(
    problem(503, "overloaded", `Too many requests at this moment; try again in ${seconds} s`, {
      headers: { "retry-after": String(seconds) }
    })
  )
)

type Arriving = Pick<IncomingMessage, "complete">

/** Answers in place of `self` when too many others are under way. */
export const admission = Effect.map(RequestLimit, (limit) => {
  const underWay = new Set<Arriving>()
  const isFull = () => {
    if (underWay.size < limit.atOnce) return false
    let whole = 0
    for (const { complete } of underWay) if (complete) whole++
    return whole >= limit.atOnce
  }
  return <E, R>(request: Arriving, self: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
    Effect.suspend((): typeof self => {
      if (isFull()) return overloaded
      underWay.add(request)
      return Effect.ensuring(
        self,
        Effect.sync(() => underWay.delete(request))
      )
    })
})
