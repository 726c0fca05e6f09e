/** Why a call fails, in the shape in which OpenAI's API tells it, so that its clients understand it. */
import * as Data from "effect/Data"
import * as HttpServerResponse from "effect/http/HttpServerResponse"

export class CallFailed extends Data.TaggedError("CallFailed")<{
  readonly status: number
  /** For programs: stays the same from release to release. */
  readonly code: string
  /** For people: without anything of the prompt, of the answer, and of an upstream's words. */
  readonly message: string
  /** What of the request is at fault, such as `messages[0].content`. */
  readonly param?: string
  /** Seconds. */
  readonly retryAfter?: number
  /** Whether the same request may succeed if it is sent again; otherwise clients are told not to. */
  readonly again?: boolean
  readonly headers?: Readonly<Record<string, string>>
}> {}

export const callFailed = (
  status: number,
  code: string,
  message: string,
  more: Partial<Pick<CallFailed, "param" | "retryAfter" | "again" | "headers">> = {}
): CallFailed => new CallFailed({ status, code, message, ...more })

export const invalidRequest = (code: string, message: string, param?: string): CallFailed =>
  callFailed(400, code, message, param === undefined ? {} : { param })

const types: Readonly<Record<number, string>> = {
  401: "authentication_error",
  402: "insufficient_quota",
  429: "rate_limit_error"
}

export const errorBody = ({ status, code, message, param }: CallFailed) => ({
  error: {
    message,
    type: types[status] ?? (status < 500 ? "invalid_request_error" : "server_error"),
    param: param ?? null,
    code
  }
})

/**
 * `x-should-retry` is for OpenAI's clients: by themselves they repeat every 429 and 5xx, also where our own tries are
 * spent already.
 */
export const failureResponse = (failure: CallFailed): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(errorBody(failure), {
    status: failure.status,
    headers: {
      "cache-control": "no-store",
      "x-should-retry": String(failure.again ?? false),
      ...(failure.retryAfter === undefined ? {} : { "retry-after": String(failure.retryAfter) }),
      ...failure.headers
    }
  })

/** The store, or whatever else the service itself needs, is away for now. */
export const unavailable = callFailed(503, "unavailable", "The service is not available at the moment", {
  again: true,
  retryAfter: 1
})
