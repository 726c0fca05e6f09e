/** A real HTTPS server whose certificate the platform's own authority signed. */
import * as http from "node:http"
import * as https from "node:https"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"

export interface Received {
  readonly method: string
  readonly path: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: string
  readonly servername: string | false | undefined
}

export type Responder = (request: Received, response: http.ServerResponse) => void

/** Answers 204 unless told otherwise. */
export const receiver = Effect.fnUntraced(function* (
  respond: Responder = (_, response) => void response.writeHead(204).end(),
  { plain = false, hosts = ["localhost", "127.0.0.1", "::1"] }: ReceiverOptions = {}
) {
  const received: Array<Received> = []
  const listener: http.RequestListener = (incoming, response) => {
    const chunks: Array<Buffer> = []
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk))
    incoming.on("end", () => {
      const { socket } = incoming
      const request: Received = {
        method: incoming.method ?? "",
        path: incoming.url ?? "",
        headers: incoming.headers,
        body: Buffer.concat(chunks).toString(),
        servername: "servername" in socket ? (socket.servername as string | false) : undefined
      }
      received.push(request)
      respond(request, response)
    })
  }
  const server = plain ? http.createServer(listener) : https.createServer(yield* credentials(hosts), listener)
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()))),
    () =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            server.closeAllConnections()
          })
      )
  )
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  return { port, received, url: (host = "127.0.0.1") => `${plain ? "http" : "https"}://${host}:${port}` }
})

interface ReceiverOptions {
  readonly plain?: boolean
  readonly hosts?: readonly [string, ...ReadonlyArray<string>]
}

const credentials = Effect.fnUntraced(function* (hosts: readonly [string, ...ReadonlyArray<string>]) {
  const authority = yield* CertificateAuthority
  const issued = yield* authority.issue({ hosts })
  return { cert: issued.certificatePem, key: Redacted.value(issued.privateKeyPem) }
})
