/**
 * The agent's own HTTP server, on a TCP port of this machine that only HAProxy has the key for. Holding the port is also
 * what gives a process its turn: of two processes of one data folder, as when one takes over from another, the second one
 * waits here, and requests with it.
 */
import { timingSafeEqual } from "node:crypto"
import * as http from "node:http"
import type { Duplex } from "node:stream"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Schedule from "effect/Schedule"
import { agentHeaders } from "../haproxy-config.ts"
import type { makeDispatch } from "./dispatch.ts"
import type { Forwarder } from "./forward.ts"
import type { EdgeAnswer, EdgeRequest } from "./Gate.ts"

/** A process that stops gives the port back within moments. */
const turnMs = 100
const tellAfterMs = 30_000
/** What was begun may end when this process stops; the next one has the port by then. */
const drainMs = 3_000
const drainLookMs = 50

const one = (value: string | ReadonlyArray<string> | undefined): string =>
  typeof value === "string" ? value : (value?.[0] ?? "")

/** As HAProxy hands it over; undefined: it comes from somebody else. */
const requestOf = (message: http.IncomingMessage, key: Buffer, upgrade: boolean): EdgeRequest | undefined => {
  const given = Buffer.from(one(message.headers[agentHeaders.key.toLowerCase()]))
  if (given.length !== key.length || !timingSafeEqual(given, key)) return undefined
  const { host = "" } = message.headers
  const headers = Object.fromEntries(
    Object.entries(message.headers).filter(([name]) => !name.startsWith("x-svc-edge-"))
  )
  return {
    method: message.method ?? "GET",
    url: message.url ?? "/",
    host: host.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, ""),
    client: one(message.headers[agentHeaders.client.toLowerCase()]),
    scheme: message.headers[agentHeaders.scheme.toLowerCase()] === "https" ? "https" : "http",
    headers,
    upgrade
  }
}

const bodyOf = (message: http.IncomingMessage, reply?: http.ServerResponse) => (most: number) =>
  Effect.callback<Buffer | undefined>((resume) => {
    const chunks: Array<Buffer> = []
    let length = 0
    const end = (body: Buffer | undefined) => {
      message.off("data", take)
      resume(Effect.succeed(body))
    }
    const take = (chunk: Buffer) => {
      chunks.push(chunk)
      length += chunk.length
      if (length > most) {
        message.pause()
        end(undefined)
      }
    }
    if (Number(message.headers["content-length"] ?? 0) > most) return end(undefined)
    if (message.headers.expect !== undefined) reply?.writeContinue()
    message.on("data", take)
    message.once("end", () => end(Buffer.concat(chunks)))
    message.once("close", () => end(undefined))
    return Effect.sync(() => message.off("data", take))
  })

const send = (message: http.IncomingMessage, reply: http.ServerResponse, answer: EdgeAnswer) => {
  if (reply.headersSent || reply.destroyed) return
  reply.writeHead(answer.status, {
    "content-type": "text/plain; charset=utf-8",
    ...mutable(answer.headers),
    // What is left of its body is not read.
    ...(message.complete ? {} : { connection: "close" })
  })
  reply.end(message.method === "HEAD" ? undefined : answer.body)
}

const mutable = (headers: EdgeAnswer["headers"] = {}): http.OutgoingHttpHeaders =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, typeof value === "string" ? value : [...value]])
  )

/** The same on a connection that asked for another protocol. */
const sendRaw = (socket: Duplex, answer: EdgeAnswer) => {
  const lines = Object.entries({ "content-type": "text/plain; charset=utf-8", ...answer.headers }).flatMap(
    ([name, value]) =>
      (typeof value === "string" ? [value] : value).map(
        (one) => `${name}: ${one.replace(/[\r\n]/g, " ")}\r\n`
      )
  )
  const body = Buffer.from(answer.body ?? "")
  const reason = http.STATUS_CODES[answer.status] ?? "Answer"
  socket.write(
    `HTTP/1.1 ${answer.status} ${reason}\r\n${lines.join("")}content-length: ${body.length}\r\nconnection: close\r\n\r\n`
  )
  socket.end(body)
}

const strange: EdgeAnswer = { _tag: "Answer", status: 403, body: "This port is for the edge alone.\n" }
const broken: EdgeAnswer = { _tag: "Answer", status: 500, body: "Something went wrong here.\n" }

/** Answers once it is this process's turn; the server ends with the scope. */
export const listen = Effect.fnUntraced(function* (options: {
  readonly port: number
  readonly key: string
  readonly dispatch: Effect.Success<typeof makeDispatch>
  readonly forwarder: Forwarder
}) {
  const { port, dispatch, forwarder } = options
  const key = Buffer.from(options.key)
  const run = yield* FiberSet.makeRuntime()
  const decide = (request: EdgeRequest, message: http.IncomingMessage, reply?: http.ServerResponse) =>
    dispatch(request, bodyOf(message, reply)).pipe(
      Effect.catchCause((cause) =>
        Effect.as(
          Effect.logError("a fault of the program: a request to the edge was not decided", cause),
          broken
        )
      )
    )

  const replies = new Set<http.ServerResponse>()
  const tunnels = new Set<Duplex>()

  const serve = (message: http.IncomingMessage, reply: http.ServerResponse) => {
    const request = requestOf(message, key, false)
    if (request === undefined) return send(message, reply, strange)
    const fiber = run(
      Effect.map(decide(request, message, reply), (decision) =>
        decision._tag === "Answer"
          ? send(message, reply, decision)
          : forwarder.request(message, reply, request, decision)
      )
    )
    replies.add(reply)
    reply.once("close", () => {
      replies.delete(reply)
      // Who has gone is not held.
      fiber.interruptUnsafe()
    })
  }
  const upgrade = (message: http.IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on("error", () => socket.destroy())
    const request = requestOf(message, key, true)
    if (request === undefined) return sendRaw(socket, strange)
    const fiber = run(
      Effect.map(decide(request, message), (decision) =>
        decision._tag === "Answer"
          ? sendRaw(socket, decision)
          : forwarder.upgrade(message, socket, head, request, decision)
      )
    )
    tunnels.add(socket)
    socket.once("close", () => {
      tunnels.delete(socket)
      fiber.interruptUnsafe()
    })
  }

  const server = yield* Effect.acquireRelease(
    Effect.sync(() => {
      // How long a request and its header may take is HAProxy's to say.
      const made = http.createServer({ requestTimeout: 0, keepAliveTimeout: 120_000, maxHeaderSize: 65_536 })
      made.on("request", serve)
      made.on("checkContinue", serve)
      made.on("upgrade", upgrade)
      return made
    }),
    (made) =>
      Effect.gen(function* () {
        made.close()
        for (let waited = 0; replies.size > 0 && waited < drainMs; waited += drainLookMs)
          yield* Effect.sleep(drainLookMs)
        made.closeAllConnections()
        for (const socket of tunnels) socket.destroy()
        forwarder.close()
      })
  )
  const attempt = Effect.callback<void, NodeJS.ErrnoException>((resume) => {
    const fail = (error: NodeJS.ErrnoException) => resume(Effect.fail(error))
    server.once("error", fail)
    server.listen({ port, host: "127.0.0.1", exclusive: true, backlog: 1_024 }, () => {
      server.off("error", fail)
      resume(Effect.void)
    })
    return Effect.sync(() => server.off("error", fail))
  })
  yield* Effect.forkScoped(
    Effect.andThen(
      Effect.sleep(tellAfterMs),
      Effect.suspend(() =>
        server.listening
          ? Effect.void
          : Effect.logWarning(
              `port ${port} of 127.0.0.1 is held by another process: this one serves no apps' addresses until it is free`
            )
      )
    )
  )
  yield* Effect.retry(attempt, Schedule.spaced(turnMs))
})
