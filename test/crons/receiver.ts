/** An app that cron jobs call: it notes every request and answers what the test says. */
import { createServer, type IncomingHttpHeaders } from "node:http"
import * as Effect from "effect/Effect"

export interface Received {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly at: number
}
export interface Reply {
  readonly status: number
  readonly afterMs?: number
  /** The answer comes once this is fulfilled. */
  readonly when?: Promise<unknown>
  readonly headers?: Record<string, string>
}

export const receiver = Effect.fnUntraced(function* (
  reply: (request: Received, count: number) => Reply | undefined = () => undefined
) {
  const received: Array<Received> = []
  let begun = 0
  let aborted = 0
  const server = createServer((request, response) => {
    begun++
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const one: Received = {
        method: request.method ?? "",
        path: request.url ?? "",
        headers: request.headers,
        text: Buffer.concat(chunks).toString("utf8"),
        at: Date.now()
      }
      received.push(one)
      const { status, afterMs = 0, when, headers = {} } = reply(one, received.length) ?? { status: 200 }
      const end = () => void response.writeHead(status, headers).end()
      if (when !== undefined) void when.then(end)
      else if (afterMs === 0) end()
      else setTimeout(end, afterMs)
    })
    response.on("close", () => {
      if (!response.writableFinished) aborted++
    })
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  const address = server.address()
  const port = address !== null && typeof address === "object" ? address.port : 0
  return { origin: `http://127.0.0.1:${port}`, received, begun: () => begun, aborted: () => aborted }
})
