// An app that greets whoever the edge has let in: npx node examples/visitors/app.ts
//
//   SIGNING_SECRET   whsec_..., as svc environments rotate-secret showed it
//   PORT             default 3000
import { createServer } from "node:http"
import { verify } from "./verify.ts"

const { SIGNING_SECRET: secret, PORT: port = "3000" } = process.env
if (!secret) {
  console.error("SIGNING_SECRET must be set")
  process.exit(2)
}

createServer((request, response) => {
  const host = String(request.headers["x-forwarded-host"] ?? request.headers.host).replace(/:\d+$/, "")
  const visitor = verify(secret, request.headers, host)
  response.writeHead(visitor === undefined ? 403 : 200, { "content-type": "text/plain; charset=utf-8" })
  response.end(visitor === undefined ? "I do not know you.\n" : `Hello ${visitor.email}\n`)
}).listen(Number(port), "127.0.0.1", () => console.log(`Listening on http://localhost:${port}`))
