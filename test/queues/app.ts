/** An app that takes the batches of queues: a real server, which keeps what came and answers as it is told. */
import { createHmac } from "node:crypto"
import * as http from "node:http"
import * as Effect from "effect/Effect"

export interface Delivered {
  readonly path: string
  readonly headers: http.IncomingHttpHeaders
  readonly raw: string
  readonly queueId: string
  readonly messages: ReadonlyArray<{
    readonly id: string
    readonly attempt: number
    readonly publishedAt: string
    readonly body: unknown
  }>
}

export type Answering = (batch: Delivered, response: http.ServerResponse) => void

export const reply = (response: http.ServerResponse, status: number, body?: unknown) => {
  if (body === undefined) return void response.writeHead(status).end()
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
}

export interface App {
  readonly origin: string
  readonly batches: Array<Delivered>
  /** The bodies of everything that came, in its order. */
  readonly bodies: () => ReadonlyArray<unknown>
  answer: Answering
}

/** Answers 204 unless told otherwise. */
export const startApp = Effect.map(
  Effect.acquireRelease(
    Effect.promise(async () => {
      const batches: Array<Delivered> = []
      const app = {
        batches,
        bodies: () => batches.flatMap(({ messages }) => messages.map(({ body }) => body)),
        answer: ((_, response) => reply(response, 204)) as Answering
      }
      const server = http.createServer((incoming, response) => {
        const chunks: Array<Buffer> = []
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk))
        incoming.on("end", () => {
          const raw = Buffer.concat(chunks).toString()
          const batch = {
            ...(JSON.parse(raw) as Pick<Delivered, "queueId" | "messages">),
            path: incoming.url ?? "",
            headers: incoming.headers,
            raw
          }
          batches.push(batch)
          app.answer(batch, response)
        })
      })
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()))
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      return { app: Object.assign(app, { origin: `http://127.0.0.1:${port}` }), server }
    }),
    ({ server }) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            server.closeAllConnections()
          })
      )
  ),
  ({ app }): App => app
)

/** What `svc-signature` must be for this body. */
export const signatureOf = (secret: string, time: string, body: string): string =>
  createHmac("sha256", secret).update(`${time}.${body}`).digest("hex")
