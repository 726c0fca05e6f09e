/** A peer of the API: `node:http` and postgres.js, with nothing between them. */
import * as http from "node:http"
import { answerTo } from "./peer-statements.ts"

http
  .createServer((request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const { authorization } = request.headers
      const answer =
        request.url === "/health"
          ? Promise.resolve({ status: 200, body: { ok: true } })
          : answerTo(
              authorization,
              request.method === "GET" ? undefined : JSON.parse(Buffer.concat(chunks).toString())
            )
      answer.then(
        ({ status, body }) => {
          const text = JSON.stringify(body)
          response
            .writeHead(status, {
              "content-type": "application/json",
              "content-length": Buffer.byteLength(text)
            })
            .end(text)
        },
        (error: unknown) => response.writeHead(500).end(String(error))
      )
    })
  })
  .listen(Number(process.env["PEER_PORT"]), "127.0.0.1")

process.once("SIGTERM", () => process.exit(0))
