// A receiver of webhooks: npx node examples/webhook-receiver/receiver.ts
//
//   WEBHOOK_SECRET      whsec_..., as svc webhooks create printed it
//   TLS_CERT, TLS_KEY   PEM files; events are sent to HTTPS addresses only
//   PORT                default 8443
import { readFileSync } from "node:fs"
import { createServer } from "node:https"
import { verify, type WebhookEvent } from "./verify.ts"

const { WEBHOOK_SECRET: secret, TLS_CERT: cert, TLS_KEY: key, PORT: port = "8443" } = process.env
if (!secret || !cert || !key) {
  console.error("WEBHOOK_SECRET, TLS_CERT and TLS_KEY must be set")
  process.exit(2)
}
const longest = 1024 * 1024

/** An event may come more than once, and after one that happened later: its id tells repeats. */
const seen = new Set<string>()

createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
  const chunks: Array<Buffer> = []
  let size = 0
  request.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > longest) request.destroy()
    else chunks.push(chunk)
  })
  request.on("end", () => {
    let event: WebhookEvent
    try {
      event = verify(secret, request.headers, Buffer.concat(chunks).toString("utf8"))
    } catch (error) {
      console.error(error instanceof Error ? error.message : error)
      response.writeHead(401).end()
      return
    }
    // Answer first and work later: what is not answered within 15 seconds is sent again.
    response.writeHead(204).end()
    if (seen.has(event.id)) return
    seen.add(event.id)
    for (const oldest of seen) {
      if (seen.size <= 10_000) break
      seen.delete(oldest)
    }
    console.log(JSON.stringify(event))
  })
}).listen(Number(port), () => console.log(`Listening on https://localhost:${port}`))
