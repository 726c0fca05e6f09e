/**
 * The servers that the bench `ai` runs in processes of their own, by the first argument: `upstream`, which answers as a
 * model would, with PAUSE_MS between events; and `pipe`, which hands the bytes of UPSTREAM on and looks at nothing: the
 * least that anything in between can cost.
 */
import { createServer, type RequestListener } from "node:http"
import { Pool } from "undici"

const events = 32
const pauseMs = Number(process.env["PAUSE_MS"] ?? 0)

const chunk = (delta: object, finish: string | null) =>
  `data: ${JSON.stringify({ id: "chatcmpl-provider", object: "chat.completion.chunk", created: 1, model: "real", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
const usage = `data: ${JSON.stringify({ id: "chatcmpl-provider", object: "chat.completion.chunk", created: 1, model: "real", choices: [], usage: { prompt_tokens: 50, completion_tokens: events, total_tokens: 50 + events } })}\n\n`
const pause = () => new Promise((resolve) => setTimeout(resolve, pauseMs))

const upstream: RequestListener = (request, response) => {
  const answer = async () => {
    if (request.method !== "POST") return void response.end()
    for await (const _ of request);
    response.writeHead(200, { "content-type": "text/event-stream" })
    for (let event = 0; event < events; event++) {
      if (pauseMs > 0) await pause()
      response.write(chunk({ content: "a few words " }, null))
    }
    response.end(`${chunk({}, "stop")}${usage}data: [DONE]\n\n`)
  }
  answer().catch(() => response.destroy())
}

const pipeTo = (url: string): RequestListener => {
  const pool = new Pool(url, { connections: 512, pipelining: 1 })
  return (request, response) => {
    if (request.method !== "POST") return void response.end()
    pool
      .stream(
        {
          path: "/v1/chat/completions",
          method: "POST",
          body: request,
          headers: { "content-type": "application/json" }
        },
        ({ statusCode, headers }) =>
          response.writeHead(statusCode, { "content-type": String(headers["content-type"]) })
      )
      .catch(() => response.destroy())
  }
}

const listen = process.argv[2] === "pipe" ? pipeTo(process.env["UPSTREAM"] ?? "") : upstream
createServer(listen).listen(Number(process.env["PORT"]), "127.0.0.1")
