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
      const up = begin(message, request, forward)
      const fail = () => {
        if (reply.headersSent) reply.destroy()
        else {
          reply.writeHead(502, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" })
          reply.end("The app gave no answer.\n")
        }
      }
      up.once("continue", () => reply.writeContinue())
      up.on("information", (info) => {
        if (info.statusCode === 103) reply.writeEarlyHints({ link: info.headers["link"] ?? [] })
      })
      up.once("response", (response) => {
        reply.writeHead(response.statusCode ?? 502, answered(response, forward))
        // An event stream begins with its headers.
        reply.flushHeaders()
        response.on("data", (chunk: Buffer) => {
          if (!reply.write(chunk)) {
            response.pause()
            reply.once("drain", () => response.resume())
          }
        })
        response.once("end", () => {
          if (response.rawTrailers.length > 0) reply.addTrailers(pairs(response.rawTrailers))
          reply.end()
        })
        response.once("error", () => reply.destroy())
        response.once("close", () => {
          if (!response.complete) reply.destroy()
        })
      })
      up.on("error", fail)
      reply.once("close", () => up.destroy())
      if (forward.body !== undefined) return void up.end(forward.body)
      if (message.headers.expect !== undefined) up.flushHeaders()
      message.on("data", (chunk: Buffer) => {
        if (!up.write(chunk)) {
          message.pause()
          up.once("drain", () => message.resume())
        }
      })
      message.once("end", () => {
        if (message.rawTrailers.length > 0) up.addTrailers(pairs(message.rawTrailers))
        up.end()
      })
      message.once("error", () => up.destroy())
    },
    upgrade: (message, socket, head, request, forward) => {
      const up = begin(message, request, forward, false)
      const fail = () => socket.destroy()
      const write = (response: http.IncomingMessage, headers: ReadonlyArray<string>) => {
        const lines = pairs(headers).map(([name, value]) => `${name}: ${value}\r\n`)
        socket.write(
          `HTTP/1.1 ${response.statusCode} ${response.statusMessage}\r\n${lines.join("")}\r\n`,
          "latin1"
        )
      }
      up.once("upgrade", (response, other, rest) => {
        write(response, [...answered(response, forward), "Connection", "Upgrade"])
        if (rest.length > 0) socket.write(rest)
        if (head.length > 0) other.write(head)
        other.pipe(socket).pipe(other)
        other.on("error", fail)
        other.once("close", () => socket.destroy())
        socket.once("close", () => other.destroy())
      })
      // The app does not want to: what it says instead ends the connection.
      up.once("response", (response) => {
        const headers = pairs(answered(response, forward)).filter(
          ([name]) => name.toLowerCase() !== "transfer-encoding"
        )
        write(response, [...headers.flat(), "Connection", "close"])
        response.pipe(socket)
      })
      up.on("error", fail)
      socket.on("error", () => up.destroy())
      socket.once("close", () => up.destroy())
      up.end()
    },
    close: () => agent.destroy()
  }
}

const pairs = (flat: ReadonlyArray<string>): Array<[string, string]> =>
  Array.from({ length: flat.length / 2 }, (_, i): [string, string] => [
    flat[2 * i] ?? "",
    flat[2 * i + 1] ?? ""
  ])
