// A receiver of webhooks that is a process of its own, to be killed: what it answers 204 to is in its file.
import { appendFileSync, readFileSync } from "node:fs"
import { createServer } from "node:https"

const [address, port, certFile, keyFile, log] = process.argv.slice(2)
// One that was killed may have left half a line.
appendFileSync(log, "\n")
createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, (request, response) => {
  let body = ""
  request.setEncoding("utf8")
  request.on("data", (chunk) => {
    body += chunk
  })
  request.on("end", () => {
    appendFileSync(log, `${JSON.stringify({ headers: request.headers, body })}\n`)
    // So that there is a moment between taking and answering in which it can die.
    setTimeout(() => response.writeHead(204).end(), 5)
  })
}).listen(Number(port), address, () => console.log("listening"))
