// An app that works off a queue and is called by a cron job: npx node examples/worker/worker.ts
//
//   SIGNING_SECRET   whsec_..., as svc api POST .../environments/production/signing-secret/rotate printed it
//   PORT             default 3000
//
// The platform calls it once the environment says where it is, and a queue or a cron job names a path of it:
//
//   svc api PATCH /v1/orgs/main/projects/shop/environments/production --data '{"origin":"http://127.0.0.1:3000"}'
//   svc queues create shop jobs --path /jobs
//   svc queues publish shop jobs '{"greet":"world"}'
import { createServer } from "node:http"
import { verify } from "../webhook-receiver/verify.ts"

interface Batch {
  readonly queueId: string
  readonly messages: ReadonlyArray<{
    readonly id: string
    /** How often it was delivered, this time included. */
    readonly attempt: number
    readonly publishedAt: string
    readonly body: unknown
  }>
}

type Outcome =
  | { readonly outcome: "ack" }
  | { readonly outcome: "retry"; readonly reason: string; readonly delaySeconds?: number }
  /** Trying again would not help: it goes to the dead letter queue at once. */
  | { readonly outcome: "reject"; readonly reason: string }

const { SIGNING_SECRET: secret, PORT: port = "3000" } = process.env
if (!secret) {
  console.error("SIGNING_SECRET must be set")
  process.exit(2)
}
/** A batch holds a mebibyte of messages and what is written around them. */
const longest = 2 * 1024 * 1024

/** A message may come more than once: what was done for it is remembered by its id. */
const done = new Set<string>()

const work = (body: unknown): Outcome => {
  if (typeof body !== "object" || body === null || !("greet" in body)) {
    return { outcome: "reject", reason: "There is nobody to greet" }
  }
  console.log(`Hello, ${String(body.greet)}`)
  return { outcome: "ack" }
}

const attempt = (message: Batch["messages"][number]): Outcome => {
  if (done.has(message.id)) return { outcome: "ack" }
  try {
    const outcome = work(message.body)
    if (outcome.outcome === "ack") done.add(message.id)
    return outcome
  } catch (error) {
    return { outcome: "retry", reason: error instanceof Error ? error.message : "It failed" }
  }
}

createServer((request, response) => {
  const chunks: Array<Buffer> = []
  let size = 0
  request.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > longest) request.destroy()
    else chunks.push(chunk)
  })
  request.on("end", () => {
    const text = Buffer.concat(chunks).toString("utf8")
    try {
      verify(secret, request.headers, text)
    } catch (error) {
      console.error(error instanceof Error ? error.message : error)
      response.writeHead(401).end()
      return
    }
    if (request.url !== "/jobs") {
      console.log(`${request.url} was called`)
      response.writeHead(204).end()
      return
    }
    const batch: Batch = JSON.parse(text)
    const messages = batch.messages.map((message) => ({ id: message.id, ...attempt(message) }))
    // What this does not name is delivered again.
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ messages }))
  })
}).listen(Number(port), "127.0.0.1", () => console.log(`Listening on http://127.0.0.1:${port}`))
