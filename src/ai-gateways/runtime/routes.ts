/**
 * `/v1/runtime/ai/{gatewayName}`: what clients of OpenAI's API call. Errors have OpenAI's shape here, and not that of the
 * rest of the API.
 */
import { isUtf8 } from "node:buffer"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import * as ByteSize from "effect/ByteSize"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { AiModel } from "#schemas/ai-gateway.ts"
import { type GatewayCaller, GatewayCallers } from "../GatewayCallers.ts"
import { Ledger } from "../Ledger.ts"
import { completion, eventWriter, naming } from "./answer.ts"
import { type Books, type CallRequest, type Running, startCall } from "./call.ts"
import { makeDeadlines } from "./deadlines.ts"
import { CallFailed, callFailed, failureResponse, invalidRequest, unavailable } from "./failure.ts"
import { makeLimits } from "./limits.ts"
import { readRequest } from "./request.ts"
import { Upstreams } from "./Upstreams.ts"

const longestBody = ByteSize.bytes(1024 * 1024)
const isModel = Schema.is(AiModel)

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const callers = yield* GatewayCallers
    const books = { callers, ledger: yield* Ledger, deadlines: yield* makeDeadlines }
    const upstreams = yield* Upstreams
    const limit = yield* makeLimits

    /** Who calls, and which gateway. */
    const identified = Effect.gen(function* () {
      const { headers } = yield* HttpServerRequest.HttpServerRequest
      const { gatewayName = "" } = yield* HttpRouter.params
      const bearer = /^Bearer +(\S+) *$/i.exec(headers["authorization"] ?? "")?.[1]
      if (bearer === undefined) {
        return yield* callFailed(
          401,
          "missing_api_key",
          "Send a key of the gateway, or the token of an app, as a bearer token"
        )
      }
      const found = yield* callers.identify(Redacted.make(bearer), gatewayName)
      if (Option.isNone(found))
        return yield* callFailed(401, "invalid_api_key", "The credential does not hold")
      const caller: GatewayCaller = found.value
      const { gateway } = caller
      if (gateway === undefined) {
        return yield* callFailed(404, "gateway_not_found", "The credential reaches no gateway of this name")
      }
      return { caller, gateway }
    })

    const chat = Effect.gen(function* () {
      const startedMs = yield* Clock.currentTimeMillis
      const { caller, gateway } = yield* identified
      if (!caller.billingActive) {
        return yield* callFailed(402, "billing_inactive", "Billing of the organization is not active")
      }
      const limited = yield* limit({ gateway: gateway.uid, keyId: caller.keyId })
      const asked = yield* Effect.flatMap(bodyText, readRequest)
      const { request } = asked
      const { model } = request
      if (!isModel(model) || !gateway.spec.allowedModels.includes(model)) {
        return yield* callFailed(
          404,
          "model_not_found",
          `The gateway allows ${gateway.spec.allowedModels.join(", ")}`,
          { param: "model" }
        )
      }
      const name = naming(model, startedMs)
      const response = NodeHttpServerRequest.toServerResponse(yield* HttpServerRequest.HttpServerRequest)
      // Who does not read would otherwise hold the call for ever: the server waits until what it has written is read.
      const dropClient = () => void response.destroy()
      const call = { caller, gateway, model, asked, startedMs, upstreams: upstreams.of(model), dropClient }
      return yield* request.stream === true
        ? streamed(books, call, eventWriter(name, request.stream_options?.include_usage === true), limited)
        : whole(books, call, completion(name), limited)
    })

    const models = Effect.map(identified, ({ gateway }) =>
      HttpServerResponse.jsonUnsafe(
        {
          object: "list",
          data: gateway.spec.allowedModels.map((id) => ({ id, object: "model", created: 0, owned_by: "svc" }))
        },
        { headers: { "cache-control": "no-store" } }
      )
    )

    const base = "/v1/runtime/ai/:gatewayName" as const
    return Layer.mergeAll(
      HttpRouter.add("POST", `${base}/chat/completions`, answered(chat)),
      HttpRouter.add("GET", `${base}/models`, answered(models))
    )
  })
)

/** Every failure in OpenAI's shape. */
const answered = <E extends CallFailed | { readonly _tag: "StoreUnavailable" }, R>(
  http: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
) =>
  Effect.catchCause(http, (cause) => {
    for (const reason of cause.reasons) {
      if (reason._tag === "Interrupt") return Effect.interrupt
      if (reason._tag !== "Fail") continue
      return Effect.succeed(failureResponse(reason.error instanceof CallFailed ? reason.error : unavailable))
    }
    return Effect.as(
      Effect.logError("a call of a gateway failed unexpectedly", Cause.pretty(cause)),
      failureResponse(callFailed(500, "internal", "Something went wrong here"))
    )
  })

const tooLarge = callFailed(413, "payload_too_large", "The body is longer than 1 MiB")

const bodyText = Effect.gen(function* () {
  const request = yield* HttpServerRequest.HttpServerRequest
  const encoding = request.headers["content-encoding"]?.trim().toLowerCase() ?? ""
  if (encoding !== "" && encoding !== "identity") {
    return yield* callFailed(415, "unsupported_content_encoding", "Send the body without a Content-Encoding")
  }
  const bytes = yield* Effect.mapError(request.arrayBuffer, ({ reason }) =>
    reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
      ? tooLarge
      : invalidRequest("invalid_body", "The body cannot be read")
  )
  if (!isUtf8(bytes)) return yield* invalidRequest("invalid_body", "The body is not valid UTF-8")
  return Buffer.from(bytes).toString("utf8")
}).pipe(Effect.provideService(HttpIncomingMessage.MaxBodySize, longestBody))

type Call = Omit<CallRequest, "sink">

const whole = Effect.fnUntraced(function* (
  books: Books,
  call: Call,
  answer: ReturnType<typeof completion>,
  headers: Readonly<Record<string, string>>
) {
  const running = yield* startCall(books, { ...call, sink: answer.sink })
  const { more, usage } = running
  while (yield* more) {}
  return HttpServerResponse.jsonUnsafe(answer.body(usage()), {
    headers: { ...headers, "cache-control": "no-store" }
  })
})

type Writer = ReturnType<typeof eventWriter>

const streamed = Effect.fnUntraced(function* (
  books: Books,
  call: Call,
  writer: Writer,
  headers: Readonly<Record<string, string>>
) {
  const running = yield* startCall(books, { ...call, sink: writer.sink })
  return HttpServerResponse.stream(eventsOf(running, writer), {
    contentType: "text/event-stream",
    // A proxy in front would otherwise collect the events (nginx, ngx_http_proxy_module).
    headers: { ...headers, "cache-control": "no-store", "x-accel-buffering": "no" }
  })
})

/** The answer's events; it stays in the middle when the client does not read. */
const eventsOf = ({ more, usage, isComplete }: Running, writer: Writer): Stream.Stream<Uint8Array> => {
  let over = false
  let last = ""
  const ended = (text: string) => {
    over = true
    last = text
  }
  const step: Effect.Effect<void> = Effect.match(more, {
    onSuccess: (goesOn) => (goesOn ? undefined : ended(writer.end(usage()))),
    onFailure: (failure) => ended(writer.failed(failure))
  })
  const pull: Effect.Effect<readonly [Uint8Array], Cause.Done> = Effect.suspend(() => {
    // The last events go out with the end, where both are there.
    if (!over && isComplete()) return Effect.andThen(step, pull)
    const text = writer.take() + last
    last = ""
    if (text !== "") return Effect.succeed([Buffer.from(text)] as const)
    return over ? Cause.done() : Effect.andThen(step, pull)
  })
  return Stream.fromPull(Effect.succeed(pull))
}
