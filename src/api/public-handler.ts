/** Before operations that strangers may call: other sites' pages are refused, and failures get the usual form. */
import * as ByteSize from "effect/ByteSize"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import { otherOrigin } from "#src/access/same-origin.ts"
import { checkBody } from "./body.ts"
import { Operation } from "./definition/operation.ts"
import { PublicAccess } from "./definition/public-access.ts"
import { toFailureResponse } from "./failure.ts"
import { problem, toResponse } from "./problem.ts"

/** Otherwise another site could sign its visitors in here, as somebody it chose. */
const crossOrigin = problem(403, "cross_origin", "Signing in must come from our own pages")

export const layer = Layer.succeed(PublicAccess, (http, { endpoint }) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const operation = Context.get(endpoint.annotations, Operation)
    if (operation?.risk !== "read" && otherOrigin(request)) return yield* toResponse(crossOrigin)
    const response = yield* checkBody(request).pipe(
      Effect.andThen(http),
      Effect.catchCause(toFailureResponse),
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(operation?.longestBody ?? 0))
    )
    return HttpServerResponse.setHeader(response, "cache-control", "no-store")
  })
)
