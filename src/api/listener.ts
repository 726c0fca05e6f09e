/** The HTTP server under the API: what it bounds before a request reaches any code of ours. */
import { createServer, type Server, ServerResponse } from "node:http"

export interface Bounds {
  /** For a whole request, its body included, from its first byte on. A body of 4 MiB needs 70 kB/s. */
  readonly requestMs: number
  /** For the header fields alone. */
  readonly headersMs: number
  /** How often connections are looked at, so that a bound is kept to within this. */
  readonly checkMs: number
}

export const bounds: Bounds = { requestMs: 60_000, headersMs: 15_000, checkMs: 5_000 }

/**
 * An answer that is a text leaves in one write with its header fields. The framework asks Node to count what is written,
 * because of streams of a length that was told before, and Node then writes twice; how long a text is was counted already.
 */
class Answer extends ServerResponse {
  override end(...written: Array<unknown>): this {
    if (typeof written[0] === "string") this.strictContentLength = false
    return Reflect.apply(super.end, this, written)
  }
}

/**
 * A request that trickles in is answered with 408 after a time, and its connection ends. Answers may take as long as
 * they need.
 *
 * The server listens a moment before its routes are ready. A request that comes in between would never be answered,
 * because nobody listens for it yet; it is told to come back.
 */
export const listener = ({ requestMs, headersMs, checkMs }: Bounds = bounds): Server => {
  const server = createServer({
    ServerResponse: Answer,
    requestTimeout: requestMs,
    headersTimeout: headersMs,
    connectionsCheckingInterval: checkMs
  })
  server.on("request", (_, response) => {
    if (server.listenerCount("request") > 1) return
    response.writeHead(503, { "retry-after": "1", connection: "close" }).end()
  })
  return server
}
