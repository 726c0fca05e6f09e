/**
 * Sends a request on to its app by way of HAProxy: through the frontend that only this machine's user can connect to. It
 * is judged there like any other, so that this process knows no target, and cuts and sets no header for an app.
 */
import * as http from "node:http"
import type { Duplex } from "node:stream"
import { agentHeaders } from "../haproxy-config.ts"
import type { EdgeRequest, Forward } from "./Gate.ts"

/** Of the connection alone (RFC 9110, section 7.6.1). `Upgrade` goes with the request that asks for it. */
const ofConnection: ReadonlySet<string> = new Set(["connection", "keep-alive", "proxy-connection", "te"])

const headersOf = (message: http.IncomingMessage, request: EdgeRequest, forward: Forward) => {
  const headers: Array<string> = []
  const skipped = (name: string) =>
    ofConnection.has(name) ||
    name.startsWith("x-svc-") ||
    (name === "cookie" && forward.cookie !== undefined) ||
    (name === "upgrade" && !request.upgrade) ||
    (forward.body !== undefined && ["content-length", "transfer-encoding", "expect"].includes(name))
  for (let i = 0; i < message.rawHeaders.length; i += 2) {
    const name = message.rawHeaders[i] ?? ""
    if (!skipped(name.toLowerCase())) headers.push(name, message.rawHeaders[i + 1] ?? "")
  }
  if (forward.cookie !== undefined && forward.cookie !== "") headers.push("Cookie", forward.cookie)
  if (forward.body !== undefined) headers.push("Content-Length", String(forward.body.length))
  if (request.upgrade) headers.push("Connection", "Upgrade")
  headers.push(agentHeaders.client, request.client)
  return headers
}

const answered = (response: http.IncomingMessage, forward: Forward) => {
  const headers: Array<string> = []
  for (let i = 0; i < response.rawHeaders.length; i += 2) {
    const name = response.rawHeaders[i] ?? ""
    if (!ofConnection.has(name.toLowerCase())) headers.push(name, response.rawHeaders[i + 1] ?? "")
  }
  for (const cookie of forward.setCookies ?? []) headers.push("Set-Cookie", cookie)
  return headers
}

export interface Forwarder {
  /** Ends when both sides have all there is, or one has gone. */
  readonly request: (
    message: http.IncomingMessage,
    reply: http.ServerResponse,
    request: EdgeRequest,
    forward: Forward
  ) => void
  readonly upgrade: (
    message: http.IncomingMessage,
    socket: Duplex,
    head: Buffer,
    request: EdgeRequest,
    forward: Forward
  ) => void
  readonly close: () => void
}

/** A final answer (RFC 9110, section 15): of any other status nobody can say what it means, and Node cannot send some. */
const isFinal = ({ statusCode = 0 }: http.IncomingMessage) => statusCode >= 200 && statusCode <= 599

/**
 * What an app sends may be something that Node refuses to send on, and throws. That ends one request: thrown in an
 * event's listener, it would end the process with all others.
 */
const guarded =
  <Args extends ReadonlyArray<unknown>>(fail: () => void, listener: (...args: Args) => void) =>
  (...args: Args): void => {
    try {
      listener(...args)
    } catch {
      fail()
    }
  }

const noAnswer = "The app gave no answer.\n"

export const makeForwarder = (socketPath: string): Forwarder => {
  const agent = new http.Agent({ keepAlive: true, maxFreeSockets: 32 })
  const begin = (
    message: http.IncomingMessage,
    request: EdgeRequest,
    forward: Forward,
    own?: http.Agent | false
  ) =>
    http.request({
      socketPath,
      method: request.method,
      path: request.url,
      headers: headersOf(message, request, forward),
      setHost: false,
      agent: own ?? agent
    })

  return {
    request: (message, reply, request, forward) => {
      let up: http.ClientRequest | undefined
      const fail = () => {
        up?.destroy()
        if (reply.headersSent) return void reply.destroy()
        reply.writeHead(502, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" })
        reply.end(noAnswer)
      }
      const safely = <Args extends ReadonlyArray<unknown>>(listener: (...args: Args) => void) =>
        guarded(fail, listener)
      const answer = (response: http.IncomingMessage) => {
        response.on("error", () => reply.destroy())
        if (!isFinal(response)) return fail()
        reply.writeHead(response.statusCode ?? 502, answered(response, forward))
        // An event stream begins with its headers.
        reply.flushHeaders()
        response.on("data", (chunk: Buffer) => {
          if (!reply.write(chunk)) {
            response.pause()
            reply.once("drain", () => response.resume())
          }
        })
        response.once(
          "end",
          safely(() => {
            if (response.rawTrailers.length > 0) reply.addTrailers(pairs(response.rawTrailers))
            reply.end()
          })
        )
        response.once("close", () => {
          if (!response.complete) reply.destroy()
        })
      }
      const send = (to: http.ClientRequest) => {
        // Early hints are not passed on: they only save a browser time, at one request of many minutes.
        to.once("continue", () => reply.writeContinue())
        to.once("response", safely(answer))
        to.on("error", fail)
        to.once("close", () => {
          if (!reply.headersSent) fail()
        })
        reply.on("error", () => to.destroy())
        reply.once("close", () => to.destroy())
        if (forward.body !== undefined) return void to.end(forward.body)
        if (message.headers.expect !== undefined) to.flushHeaders()
        message.on("data", (chunk: Buffer) => {
          if (!to.write(chunk)) {
            message.pause()
            to.once("drain", () => message.resume())
          }
        })
        message.once(
          "end",
          safely(() => {
            if (message.rawTrailers.length > 0) to.addTrailers(pairs(message.rawTrailers))
            to.end()
          })
        )
        message.on("error", () => to.destroy())
      }
      safely(() => {
        up = begin(message, request, forward)
        send(up)
      })()
    },
    upgrade: (message, socket, head, request, forward) => {
      let up: http.ClientRequest | undefined
      const fail = () => {
        up?.destroy()
        socket.destroy()
      }
      const safely = <Args extends ReadonlyArray<unknown>>(listener: (...args: Args) => void) =>
        guarded(fail, listener)
      const write = (response: http.IncomingMessage, headers: ReadonlyArray<string>) => {
        const lines = pairs(headers).map(([name, value]) => `${name}: ${value}\r\n`)
        socket.write(
          `HTTP/1.1 ${response.statusCode} ${response.statusMessage}\r\n${lines.join("")}\r\n`,
          "latin1"
        )
      }
      const join = (response: http.IncomingMessage, other: Duplex, rest: Buffer) => {
        other.on("error", fail)
        other.once("close", () => socket.destroy())
        socket.once("close", () => other.destroy())
        write(response, [...answered(response, forward), "Connection", "Upgrade"])
        if (rest.length > 0) socket.write(rest)
        if (head.length > 0) other.write(head)
        other.pipe(socket).pipe(other)
      }
      // The app does not want to: what it says instead ends the connection.
      const refuse = (response: http.IncomingMessage) => {
        response.on("error", fail)
        if (!isFinal(response)) {
          socket.end(
            `HTTP/1.1 502 Bad Gateway\r\ncontent-length: ${noAnswer.length}\r\nconnection: close\r\n\r\n${noAnswer}`
          )
          return void up?.destroy()
        }
        const headers = pairs(answered(response, forward)).filter(
          ([name]) => name.toLowerCase() !== "transfer-encoding"
        )
        write(response, [...headers.flat(), "Connection", "close"])
        response.pipe(socket)
      }
      const send = (to: http.ClientRequest) => {
        to.once("upgrade", safely(join))
        to.once("response", safely(refuse))
        to.on("error", () => socket.destroy())
        socket.on("error", () => to.destroy())
        socket.once("close", () => to.destroy())
        to.end()
      }
      safely(() => {
        up = begin(message, request, forward, false)
        send(up)
      })()
    },
    close: () => agent.destroy()
  }
}

const pairs = (flat: ReadonlyArray<string>): Array<[string, string]> =>
  Array.from({ length: flat.length / 2 }, (_, i): [string, string] => [
    flat[2 * i] ?? "",
    flat[2 * i + 1] ?? ""
  ])
