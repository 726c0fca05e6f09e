/**
 * MCP over Streamable HTTP, without sessions in any revision of it: any process answers any request, and nothing is kept
 * from one to the next.
 */
import {
  createMcpHandler,
  InMemoryServerEventBus,
  type McpHttpHandler,
  ProtocolError,
  ProtocolErrorCode,
  type ServerEventBus
} from "@modelcontextprotocol/server"
import * as ByteSize from "effect/ByteSize"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import type * as HttpRouter from "effect/http/HttpRouter"
import type * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import { Access } from "#src/access/Access.ts"
import { AuditWriter } from "#src/access/AuditWriter.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { networkOf } from "#src/access/caller-address.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { otherOrigin } from "#src/access/same-origin.ts"
import { originOf } from "#src/agents/resource-identifiers.ts"
import { checkBody } from "#src/api/body.ts"
import { makeDispatch } from "#src/api/dispatch.ts"
import { malformed } from "#src/api/failure.ts"
import { readJson } from "#src/api/json.ts"
import { tooMany } from "#src/api/limits.ts"
import { fromStore, invalid, problem } from "#src/api/problem.ts"
import { makeStreams } from "#src/api/streams.ts"
import { AppConfig } from "#src/config.ts"
import type { Caller } from "./caller.ts"
import { makeCatalogue } from "./catalogue.ts"
import * as gate from "./gate.ts"
import { type Exchange, serverOf } from "./protocol.ts"
import { rpcError } from "./refusal.ts"
import { makeIndex } from "./search.ts"
import { makeFollow, mostFollowed } from "./subscriptions.ts"

/** What the longest operation takes and what stands around it; strangers only search. */
const longestBody = ByteSize.bytes(5 * 1024 * 1024)
const longestOfStrangers = ByteSize.bytes(64 * 1024)
/** Messages of a batch, which the revision 2025-03-26 has. */
const longestBatch = 20

const otherSite = problem(
  403,
  "cross_origin",
  "Other sites' pages may not call this; programs send no Origin"
)
const batchTooLong = problem(413, "payload_too_large", `A batch has ${longestBatch} messages at most`)
const tooManyFollowed = problem(
  413,
  "payload_too_large",
  `A stream follows ${mostFollowed} resources at most`
)
const internal = new ProtocolError(
  ProtocolErrorCode.InternalError,
  "Something went wrong on our side; the request id leads to the cause in the log"
)

type HttpRequest = HttpServerRequest.HttpServerRequest

export const makeAnswers = Effect.fnUntraced(function* (router: HttpRouter.HttpRouter) {
  const { publicUrl, rateLimit } = yield* AppConfig
  const access = yield* Access
  const audit = yield* AuditWriter
  const limits = yield* RateLimits
  const follow = yield* makeFollow
  const streams = yield* makeStreams
  // It takes a moment to make, and many a process is never asked for it.
  const indexed = yield* Effect.cached(Effect.sync(() => makeIndex(makeCatalogue())))

  /** The handler of one request. It ends with it. */
  const handlerOf = (exchange: Exchange, bus: ServerEventBus = new InMemoryServerEventBus()) =>
    Effect.acquireRelease(
      Effect.sync(() => createMcpHandler(({ era }) => serverOf(exchange, era), { bus })),
      (handler) => Effect.promise(() => handler.close())
    )

  const answer = Effect.fnUntraced(function* (request: HttpRequest) {
    if (otherOrigin(request)) return yield* otherSite
    const index = yield* indexed
    const caller = yield* gate.identify(access, request)
    const { address } = yield* CurrentRequest
    const bucket = caller?.identity.credentialId ?? networkOf(address ?? "unknown")
    const take = Effect.gen(function* () {
      const taken = yield* limits.take(`mcp:${bucket}`, rateLimit)
      if (!taken.allowed) return yield* tooMany("mcp", taken)
    })
    yield* take
    const body = yield* read(request, caller)
    const messages: ReadonlyArray<unknown> = Array.isArray(body) ? body : [body]
    yield* Effect.forEach(messages.slice(1), () => take, { discard: true })
    for (const message of messages) {
      const challenge = gate.admit(message, caller)
      if (challenge === undefined) continue
      if (caller !== undefined) yield* auditRefusal(challenge, caller)
      return yield* challenge
    }
    const fork = yield* FiberSet.makeRuntimePromise()
    const exchange: Exchange = {
      index,
      caller,
      dispatch: makeDispatch(router, caller, "mcp"),
      run: (effect, options) =>
        fork(Effect.tapCause(effect, logFailure), options).catch(() => Promise.reject(internal))
    }
    const followed = gate.followedBy(body)
    return caller === undefined || followed === undefined
      ? yield* buffered(yield* asked(yield* handlerOf(exchange), request, body))
      : yield* following(exchange, caller, followed, request, body)
  })

  /** What an agent was refused is told in the audit log, as the API does it. */
  const auditRefusal = ({ lacking = [] }: gate.Challenge, { credential, identity, organization }: Caller) =>
    Effect.map(CurrentRequest, ({ id, address }) => {
      for (const operation of lacking) {
        audit.denied({
          principal: `${credential.kind}:${identity.credentialId}`,
          credential: credential.kind,
          operation,
          requestId: id,
          address,
          outcome: 403,
          orgId: organization.id,
          resource: null
        })
      }
    })

  /** Answers with a stream of what changes, which goes on while the credential holds. */
  const following = Effect.fnUntraced(function* (
    exchange: Exchange,
    caller: Caller,
    uris: ReadonlyArray<unknown>,
    request: HttpRequest,
    body: unknown
  ) {
    if (uris.length > mostFollowed) return yield* tooManyFollowed
    const { credential, organization } = caller
    const counted = yield* streams({ orgId: organization.id, caller: caller.identity })
    const { tellOn, taken } = yield* follow(organization.id, uris)
    const bus = new InMemoryServerEventBus()
    const handler = yield* handlerOf(exchange, bus)
    const response = yield* asked(handler, request, body)
    const { body: events } = response
    if (events === null || !isEvents(response)) return yield* buffered(response)
    // Where the store is away the stream ends; a client that wants to go on listens again.
    const tell = Effect.andThen(
      Effect.ignore(tellOn(bus)),
      Effect.promise(() => handler.close())
    )
    yield* Effect.forkScoped(tell)
    // Nothing is told to a credential that does not hold any more. A store that is away just now decides nothing.
    const holds = access.identify(credential, organization.id, "mcp").pipe(
      Effect.map(Option.exists((found) => found.organization !== null)),
      Effect.orElseSucceed(() => true)
    )
    return HttpServerResponse.stream(
      Stream.fromReadableStream({ evaluate: () => events, onError: () => undefined }).pipe(
        Stream.mapEffect((part) => Effect.map(holds, (held) => (held ? part : undefined))),
        Stream.takeWhile((part) => part !== undefined),
        Stream.tap(() => taken),
        counted
      ),
      {
        contentType: "text/event-stream",
        headers: { "cache-control": "no-store", "x-accel-buffering": "no" }
      }
    )
  })

  return (request: HttpRequest) =>
    answer(request).pipe(
      Effect.catchTags({
        Challenge: (challenge) =>
          Effect.succeed(gate.toResponse(challenge, originOf(publicUrl, request.headers["host"]))),
        Problem: (failure) => Effect.succeed(rpcError(failure)),
        StoreUnavailable: (error) => Effect.succeed(rpcError(fromStore(error)))
      })
    )
})

/** What is sent, read once. */
const read = Effect.fnUntraced(function* (request: HttpRequest, caller: Caller | undefined) {
  yield* Effect.provideService(
    checkBody(request),
    HttpIncomingMessage.MaxBodySize,
    caller === undefined ? longestOfStrangers : longestBody
  )
  const json = readJson(yield* Effect.orDie(request.text))
  if (json === undefined) return yield* malformed
  // Keys that stand twice are refused: what is judged is what is carried out.
  if (Result.isFailure(json)) return yield* invalid(json.failure)
  const { value } = json.success
  if (Array.isArray(value) && value.length > longestBatch) return yield* batchTooLong
  return value
})

const logFailure = (cause: Cause.Cause<never>) =>
  Cause.hasInterruptsOnly(cause) ? Effect.void : Effect.logError("a tool failed unexpectedly", cause)

/** The header fields that mean something to the protocol. Credentials are none of its business. */
const protocolHeaders = ({ headers }: HttpRequest): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).filter(
      ([name]) => name === "accept" || name === "content-type" || name.startsWith("mcp-")
    )
  )

/** The protocol looks at no address and reads no body itself. What it runs ends with the scope of the request. */
const asked = (handler: McpHttpHandler, request: HttpRequest, parsedBody: unknown) =>
  Effect.promise(() =>
    handler.fetch(
      new Request("http://localhost/mcp", { method: "POST", headers: protocolHeaders(request) }),
      {
        parsedBody
      }
    )
  )

const isEvents = (response: Response): boolean =>
  response.headers.get("content-type")?.startsWith("text/event-stream") === true

/** Earlier revisions answer by a stream of events, which ends with the one answer. */
const buffered = (response: Response) =>
  Effect.map(
    Effect.promise(() => response.text()),
    (text) =>
      text === ""
        ? HttpServerResponse.empty({ status: response.status })
        : HttpServerResponse.text(text, {
            status: response.status,
            contentType: response.headers.get("content-type") ?? "application/json",
            headers: { "cache-control": "no-store" }
          })
  )
