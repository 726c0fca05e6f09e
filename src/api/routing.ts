/**
 * What surrounds every request, whatever its path: a request id, a refusal of hosts that are not ours, and a problem
 * body for what the router itself answers (unknown paths, wrong methods, wrong media types).
 */
import { IncomingMessage } from "node:http"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerError from "effect/http/HttpServerError"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import { CurrentLogAnnotations } from "effect/References"
import type * as Types from "effect/Types"
import { CurrentRequest, requestId } from "#src/access/CurrentRequest.ts"
import { callerAddress } from "#src/access/caller-address.ts"
import { AppConfig } from "#src/config.ts"
import { Api } from "./definition/api.ts"
import { tooLarge } from "./failure.ts"
import { admission } from "./overload.ts"
import { pagePaths, protocolPaths } from "./page-paths.ts"
import { internalResponse, problem, toResponse } from "./problem.ts"

const unknownHost = problem(
  421,
  "unknown_host",
  "This server does not answer for that host name; SVC_PUBLIC_URL says which it has"
)
const unknownPath = problem(404, "not_found", "There is no such path; /docs lists the operations")
const malformed = problem(400, "malformed_request", "The request cannot be read")
const mediaType = problem(
  415,
  "unsupported_media_type",
  "Send the body as application/json (manifests also as application/yaml)"
)
/** What routes of ours have, besides those of operations. */
const ownRoutes: ReadonlyArray<readonly [path: string, method: string]> = [
  ["/docs", "GET"],
  ["/app", "GET"],
  ["/app/*", "GET"],
  ["/mcp", "POST"],
  ["/v1/runtime/ai/:gatewayName/chat/completions", "POST"],
  ["/v1/runtime/ai/:gatewayName/models", "GET"],
  ["/v1/speed-insights/collect/:projectRef", "POST"],
  ["/v1/speed-insights/client.js", "GET"],
  ...pagePaths,
  ...protocolPaths
]

/** For each path, as a pattern, the methods it has. */
const methodsByPath = (): ReadonlyArray<{
  readonly pattern: RegExp
  readonly methods: ReadonlyArray<string>
}> => {
  const methods = new Map<string, Set<string>>()
  const add = (path: string, method: string) =>
    methods.set(path, (methods.get(path) ?? new Set<string>()).add(method))
  for (const [path, method] of ownRoutes) add(path, method)
  for (const group of Object.values(Api.groups)) {
    for (const endpoint of Object.values(group.endpoints)) add(endpoint.path, endpoint.method)
  }
  return [...methods].map(([path, names]) => ({
    pattern: new RegExp(
      `^${path
        .replaceAll(".", "\\.")
        .replaceAll(/:[A-Za-z]+/g, "[^/]+")
        .replace("*", ".*")}/?$`
    ),
    methods: [...names, ...(names.has("GET") ? ["HEAD"] : []), "OPTIONS"].sort()
  }))
}

export const layer = HttpRouter.middleware(
  Effect.gen(function* () {
    const { publicUrl, host, proxies, services, environmentRange } = yield* AppConfig
    const hosts = new Set([new URL(publicUrl).hostname, host, "localhost", "127.0.0.1", "[::1]"])
    // As containers call it.
    if (services !== undefined) hosts.add(services.name.toLowerCase())
    const routes = methodsByPath()
    const admitted = yield* admission

    const hasOneHost = ({ rawHeaders }: IncomingMessage): boolean => {
      let fields = 0
      for (let index = 0; index < rawHeaders.length; index += 2) {
        const name = rawHeaders[index]
        if (name?.length === 4 && name.toLowerCase() === "host") fields++
      }
      return fields <= 1
    }
    const isOurs = (host: string | undefined): boolean =>
      host === undefined || hosts.has(host) || hosts.has(host.toLowerCase().replace(/:\d+$/, ""))

    const answer = (
      http: Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled>,
      request: HttpServerRequest.HttpServerRequest
    ): Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled> => {
      if (!isReadable(request.url)) return toResponse(unknownPath)
      // Which of them a proxy on the way went by, nobody can tell. What comes from within this process has none.
      const source = request.source instanceof IncomingMessage ? request.source : undefined
      if (source !== undefined && !hasOneHost(source)) return toResponse(malformed)
      if (!isOurs(request.headers["host"])) return toResponse(unknownHost)
      return Effect.catchCause(source === undefined ? http : admitted(source, http), (cause) =>
        Cause.hasInterruptsOnly(cause)
          ? Effect.interrupt
          : Effect.flatMap(HttpServerError.causeResponse(cause), ([made]) =>
              made.status < 500
                ? Effect.succeed(made)
                : Effect.andThen(Effect.logError("a request failed unexpectedly", cause), internalResponse)
            )
      )
    }

    /** What the router and the framework answer by themselves, as a problem. */
    const explained = (
      response: HttpServerResponse.HttpServerResponse,
      request: HttpServerRequest.HttpServerRequest
    ): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
      switch (response.status) {
        case 404: {
          const path = request.url.split("?", 1)[0] ?? ""
          const route = routes.find(({ pattern }) => pattern.test(path))
          if (route === undefined) return toResponse(unknownPath)
          const allow = route.methods.join(", ")
          if (request.method === "OPTIONS")
            return Effect.succeed(HttpServerResponse.empty({ status: 204, headers: { allow } }))
          // The router reads paths a little more strictly than the pattern.
          if (route.methods.includes(request.method)) return toResponse(unknownPath)
          return toResponse(
            problem(405, "method_not_allowed", `This path takes ${allow}`, { headers: { allow } })
          )
        }
        case 413:
          return toResponse(tooLarge)
        case 415:
          return toResponse(mediaType)
        default:
          return response.status >= 500 ? internalResponse : toResponse(malformed)
      }
    }

    // The annotation gives back the error that everything above swallows: the router wants to see it handled.
    return (
      http: Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled>
    ): Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      Types.unhandled,
      HttpServerRequest.HttpServerRequest
    > =>
      Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
        const id = requestId(request.headers["x-request-id"])
        const address = callerAddress(
          Option.getOrNull(request.remoteAddress),
          request.headers["x-forwarded-for"],
          proxies,
          environmentRange
        )
        const sent = (response: HttpServerResponse.HttpServerResponse) =>
          HttpServerResponse.setHeaders(unlessModified(request, response), {
            "x-request-id": id,
            "x-content-type-options": "nosniff"
          })
        return answer(http, request).pipe(
          Effect.flatMap((response) =>
            isBare(response) ? Effect.map(explained(response, request), sent) : Effect.succeed(sent(response))
          ),
          // Both at once: each change of what surrounds a request is paid for by every request.
          Effect.updateContext((context: Context.Context<never>) =>
            context.pipe(
              Context.add(CurrentRequest, { id, address }),
              Context.add(CurrentLogAnnotations, {
                ...Context.get(context, CurrentLogAnnotations),
                requestId: id
              })
            )
          )
        )
      })
  }),
  { global: true }
)

/** `If-None-Match` (RFC 9110, section 13.1.2): what the caller has already is not sent again. */
const unlessModified = (
  request: HttpServerRequest.HttpServerRequest,
  response: HttpServerResponse.HttpServerResponse
): HttpServerResponse.HttpServerResponse => {
  const known = request.headers["if-none-match"]
  const etag = response.headers["etag"]
  if (known === undefined || etag === undefined || response.status !== 200) return response
  if (request.method !== "GET" && request.method !== "HEAD") return response
  const tags = known.split(",").map((tag) => tag.trim().replace(/^W\//, ""))
  if (known.trim() !== "*" && !tags.includes(etag.replace(/^W\//, ""))) return response
  const headers = Object.entries(response.headers).filter(([name]) => !name.startsWith("content-"))
  return HttpServerResponse.empty({ status: 304, headers: Object.fromEntries(headers) })
}

/**
 * Whether the path decodes to text that can name something: no broken escapes, no NUL character, and nothing that the
 * router would cut off and others would not.
 */
const isReadable = (url: string): boolean => {
  const path = url.split("?", 1)[0] ?? ""
  if (path.includes(";") || path.includes("#")) return false
  if (!path.includes("%")) return true
  try {
    return !decodeURIComponent(path).includes("\0")
  } catch {
    return false
  }
}

/** An error that the router or the framework made, without a body of ours. */
const isBare = (response: HttpServerResponse.HttpServerResponse): boolean =>
  response.status >= 400 &&
  (response.body._tag === "Empty" || response.headers["content-type"]?.startsWith("text/plain") === true)
