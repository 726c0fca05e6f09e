/**
 * The MCP endpoint for clients that start programs and know no HTTP: messages come on standard input, one in each line,
 * and go on as requests; what is answered goes to standard output (MCP, "Transports": stdio and Streamable HTTP).
 *
 * The endpoint keeps no sessions, and neither does this: messages pass as they are. To cancel a request is to end it, as
 * over HTTP. Standard output has messages only.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Sse from "effect/encoding/Sse"
import * as FiberMap from "effect/FiberMap"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { CliFailure, exitCodes, failure } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { jsonLine, say } from "#src/cli/output.ts"

const Id = Schema.Union([Schema.String, Schema.Finite])
const Message = Schema.Struct({
  id: Schema.optionalKey(Id),
  method: Schema.optionalKey(Schema.String),
  params: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
})
type Message = typeof Message.Type
const decodeLine = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Json))
const decodeMessage = Schema.decodeUnknownOption(Message)

/** Since the revision 2026-07-28 every request says in its body which revision it is of. */
const Envelope = Schema.Struct({
  _meta: Schema.Struct({ "io.modelcontextprotocol/protocolVersion": Schema.String })
})
const decodeEnvelope = Schema.decodeUnknownOption(Envelope)
/** What earlier ones agree on once. */
const Initialized = Schema.Struct({ result: Schema.Struct({ protocolVersion: Schema.String }) })
const decodeInitialized = Schema.decodeUnknownOption(Initialized)
const Cancelled = Schema.Struct({ requestId: Id })
const decodeCancelled = Schema.decodeUnknownOption(Cancelled)

const parseError = -32700
const serverError = -32000
/** Requests under way. A client that sends more is told so. */
const mostAtOnce = 64
/** Clients that follow something wait for ever. */
const following = "subscriptions/listen"
const patience = "5 minutes"
const lastAnswers = "10 seconds"

interface Bridged {
  /** Of the endpoint. */
  readonly url: string
  readonly send: Effect.Effect<typeof fetch, CliFailure>
  /** What to do where there is no credential, or one that does not suffice. */
  readonly hint: string
}

/** Runs until standard input ends. */
export const bridge = Effect.fnUntraced(function* ({ url, send, hint }: Bridged) {
  const { stdin } = yield* Invocation
  const underWay = yield* FiberMap.make<string, void, never>()
  let agreed: string | undefined
  let count = 0

  const fail = (message: Message, code: number, why: string) =>
    message.id === undefined
      ? say(why)
      : jsonLine({ jsonrpc: "2.0", id: message.id, error: { code, message: why } })

  const ask = Effect.fnUntraced(function* (text: string, message: Message) {
    const request = yield* send
    const response = yield* Effect.tryPromise({
      try: (signal) => {
        const init = { method: "POST", body: text, headers: headersOf(message, agreed), signal }
        // Much needs no credential, so a sign-in that is over is not in the way of it.
        return request(url, init).catch((error: unknown) => {
          if (error instanceof CliFailure && error.exitCode === exitCodes.authentication)
            return fetch(url, init)
          throw error
        })
      },
      catch: (cause) =>
        cause instanceof CliFailure ? cause : failure(`${url} cannot be reached: ${reasonOf(cause)}`)
    })
    if (response.headers.get("content-type")?.startsWith("text/event-stream") === true)
      return yield* pass(response)
    const body = decodeLine(yield* Effect.promise(() => response.text()))
    if (response.status === 401 || response.status === 403) {
      const said = Option.getOrUndefined(Option.flatMap(body, decodeRefusal))?.error.message
      return yield* fail(message, serverError, `${said ?? "It was refused"}. ${hint}`)
    }
    if (Option.isSome(body)) {
      if (message.method === "initialize")
        agreed = Option.getOrUndefined(decodeInitialized(body.value))?.result.protocolVersion
      return yield* jsonLine(body.value)
    }
    if (!response.ok) yield* fail(message, serverError, `${url} answers ${response.status}`)
  })

  /** An answer as events, of which some may come before the one that ends it. */
  const pass = (response: Response) =>
    Stream.fromReadableStream({
      evaluate: () => response.body ?? new ReadableStream({ start: (empty) => empty.close() }),
      onError: (cause) => failure(`The answer broke off: ${reasonOf(cause)}`)
    }).pipe(
      Stream.decodeText,
      Stream.pipeThroughChannel(Sse.decode()),
      Stream.runForEach(({ data }) => {
        const sent = decodeLine(data)
        if (Option.isNone(sent)) return Effect.void
        agreed = Option.getOrUndefined(decodeInitialized(sent.value))?.result.protocolVersion ?? agreed
        return jsonLine(sent.value)
      })
    )

  const take = Effect.fnUntraced(function* (line: string) {
    const sent = decodeLine(line)
    if (Option.isNone(sent))
      return yield* jsonLine({ jsonrpc: "2.0", id: null, error: { code: parseError, message: "Not JSON" } })
    const message = Option.getOrElse(decodeMessage(sent.value), (): Message => ({}))
    if (message.method === "notifications/cancelled") {
      const cancelled = decodeCancelled(message.params)
      if (Option.isSome(cancelled)) yield* FiberMap.remove(underWay, keyOf(cancelled.value.requestId))
      return
    }
    if ((yield* FiberMap.size(underWay)) >= mostAtOnce)
      return yield* fail(message, serverError, `More than ${mostAtOnce} requests at once`)
    const answered = ask(line, message).pipe(
      message.method === following ? (self) => self : Effect.timeout(patience),
      Effect.catchCause((cause) =>
        Cause.hasInterruptsOnly(cause)
          ? Effect.interrupt
          : fail(message, serverError, reasonOf(Cause.squash(cause)))
      )
    )
    // Answers of the client have ids too, of the server's requests.
    const isRequest = message.id !== undefined && message.method !== undefined
    const key = isRequest ? keyOf(message.id) : `without answer ${count++}`
    yield* FiberMap.run(underWay, key, answered)
  })

  yield* Stream.fromAsyncIterable(stdin, () => failure("Standard input cannot be read")).pipe(
    Stream.map((chunk) => (typeof chunk === "string" ? Buffer.from(chunk) : chunk)),
    Stream.decodeText,
    Stream.splitLines,
    Stream.filter((line) => line.trim() !== ""),
    Stream.runForEach(take)
  )
  yield* Effect.timeoutOption(FiberMap.awaitEmpty(underWay), lastAnswers)
}, Effect.scoped)

const Refusal = Schema.Struct({ error: Schema.Struct({ message: Schema.String }) })
const decodeRefusal = Schema.decodeUnknownOption(Refusal)

const keyOf = (id: string | number) => `id ${JSON.stringify(id)}`
const reasonOf = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  return cause.cause instanceof Error && cause.message === "fetch failed"
    ? cause.cause.message
    : cause.message
}

/** The header fields of a message. From 2026-07-28 on they repeat what is in its body, for whatever stands between. */
const headersOf = ({ method, params }: Message, agreed: string | undefined): Record<string, string> => {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream"
  }
  const envelope = decodeEnvelope(params)
  if (Option.isNone(envelope)) {
    if (agreed !== undefined && method !== "initialize") headers["mcp-protocol-version"] = agreed
    return headers
  }
  headers["mcp-protocol-version"] = envelope.value._meta["io.modelcontextprotocol/protocolVersion"]
  if (method !== undefined) headers["mcp-method"] = method
  const name = nameIn[method ?? ""]
  const value = name === undefined ? undefined : params?.[name]
  if (typeof value === "string") headers["mcp-name"] = fieldValue(value)
  return headers
}

const nameIn: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri"
}

/** What is no field value as it is goes in Base64 (MCP, "Transports": Value Encoding). */
const fieldValue = (value: string): string =>
  /^(?!=\?base64\?.*\?=$)[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?$/.test(value)
    ? value
    : `=?base64?${Buffer.from(value).toString("base64")}?=`
