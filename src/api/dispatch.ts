/**
 * Runs an operation of the API within this process, through the same router as any request: what stands before and
 * around its handler is so for everybody, whichever way they came.
 */
import * as Effect from "effect/Effect"
import * as HttpBody from "effect/http/HttpBody"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import type * as HttpMethod from "effect/http/HttpMethod"
import type * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as Option from "effect/Option"
import type { Credential, Identity } from "#src/access/Access.ts"
import { type Audience, CurrentAudience } from "#src/access/CurrentAudience.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { Identified } from "#src/access/Identified.ts"

export interface Request {
  readonly method: string
  /** Path and query, every part of it encoded. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: { readonly text: string; readonly type: string } | undefined
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Undefined: the answer is a stream, which was not read. */
  readonly text: string | undefined
}

export type Dispatch = (request: Request) => Effect.Effect<Answer>

/** As whom it is for, who was identified already; undefined: a stranger. */
export const makeDispatch = (
  router: HttpRouter.HttpRouter,
  caller: { readonly credential: Credential; readonly identity: Identity } | undefined,
  audience: Audience
): Dispatch =>
  Effect.fnUntraced(function* ({ method, url, headers, body }) {
    const { id, address } = yield* CurrentRequest
    const request = HttpServerRequest.fromClientRequest(
      HttpClientRequest.make(method as HttpMethod.HttpMethod)(`http://localhost${url}`, {
        headers: { ...headers, "x-request-id": id },
        body: body === undefined ? HttpBody.empty : HttpBody.text(body.text, body.type)
      })
      // As it was put together: reading it as a URL would take "." and ".." out of it.
    ).modify({ url, remoteAddress: Option.fromNullOr(address) })
    const response = yield* Effect.scoped(router.asHttpEffect()).pipe(
      Effect.provideService(HttpServerRequest.HttpServerRequest, request),
      Effect.provideService(CurrentAudience, audience),
      Effect.provideService(Identified, caller),
      Effect.orDie
    )
    return { status: response.status, headers: response.headers, text: textOf(response.body) }
  })

const textOf = (body: HttpBody.HttpBody): string | undefined => {
  switch (body._tag) {
    case "Empty":
      return ""
    case "Uint8Array":
      return new TextDecoder().decode(body.body)
    default:
      return undefined
  }
}
