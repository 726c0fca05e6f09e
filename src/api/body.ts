/**
 * The body of a request, looked at before anything else reads it: it is not encoded, not longer than the operation
 * takes, UTF-8, and JSON of bounded depth. What reads it afterwards finds it in memory.
 */
import { isUtf8 } from "node:buffer"
import * as Effect from "effect/Effect"
import * as HttpMethod from "effect/http/HttpMethod"
import type * as HttpServerRequest from "effect/http/HttpServerRequest"
import { deepestJson, tooDeepAt } from "#schemas/json-depth.ts"
import { malformed, tooLarge } from "./failure.ts"
import { positionsOf } from "./json.ts"
import { invalid, type Problem, problem } from "./problem.ts"

const encoded = problem(
  415,
  "unsupported_content_encoding",
  "Send the body as it is, without a Content-Encoding",
  { headers: { "accept-encoding": "identity" } }
)
const notUtf8 = problem(400, "malformed_body", "The body is not valid UTF-8")

/** Whether the request says that its body is YAML: by the media type alone, as operations are told apart by it. */
export const isYaml = ({ headers }: HttpServerRequest.HttpServerRequest): boolean =>
  (headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase() === "application/yaml"

/** Fails with the problem that the body is. How long one may be is `HttpIncomingMessage.MaxBodySize`. */
export const checkBody = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest
): Effect.fn.Return<void, Problem> {
  if (!HttpMethod.hasBody(request.method)) return
  const encoding = request.headers["content-encoding"]?.trim().toLowerCase()
  if (encoding !== undefined && encoding !== "" && encoding !== "identity") return yield* encoded
  const bytes = yield* Effect.mapError(request.arrayBuffer, ({ reason }) =>
    reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge" ? tooLarge : malformed
  )
  if (!isUtf8(bytes)) return yield* notUtf8
  // The reader of manifests bounds YAML while it takes it apart.
  if (isYaml(request)) return
  const text = yield* Effect.orDie(request.text)
  const at = tooDeepAt(text)
  if (at !== undefined) {
    const message = `is nested deeper than ${deepestJson} levels`
    return yield* invalid([{ pointer: "", message, ...positionsOf(text)(at) }])
  }
})
