/** What the agent makes of apps that answer in a way that Node does not send on. */
import * as fs from "node:fs"
import * as http from "node:http"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { makeForwarder } from "#src/edge/agent/forward.ts"
import type { EdgeRequest } from "#src/edge/agent/Gate.ts"

const listening = <S extends net.Server>(server: S, at: string | number) =>
  Effect.acquireRelease(
    Effect.promise(() => new Promise<S>((resolve) => server.listen(at, () => resolve(server)))),
    () => Effect.sync(() => server.close())
  )

/** All that a connection is told, until it ends or is cut off. */
const told = (port: number, text: string) =>
  Effect.promise(
    () =>
      new Promise<string>((resolve) => {
        const socket = net.connect(port, "127.0.0.1", () => socket.write(text))
        let seen = ""
        socket.on("data", (chunk: Buffer) => {
          seen += chunk.toString("latin1")
        })
        socket.on("error", () => undefined)
        socket.once("close", () => resolve(seen))
      })
  )

/** What a visitor is told by an app that answers with these bytes. */
const behind = Effect.fnUntraced(function* (bytes: string, upgrade = false) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-forward-"))
  yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(folder, { recursive: true })))
  const place = path.join(folder, "app")
  yield* listening(
    net.createServer((socket) => {
      socket.on("error", () => undefined)
      socket.once("data", () => socket.end(bytes, "latin1"))
    }),
    place
  )
  const forwarder = makeForwarder(place)
  yield* Effect.addFinalizer(() => Effect.sync(forwarder.close))
  const request: EdgeRequest = {
    method: "GET",
    url: "/",
    host: "app.test",
    client: "192.0.2.1",
    scheme: "https",
    headers: {},
    upgrade
  }
  const forward = { _tag: "Forward", setCookies: ["fresh=1"] } as const
  const agent = http.createServer((message, reply) => forwarder.request(message, reply, request, forward))
  agent.on("upgrade", (message, socket, head) => forwarder.upgrade(message, socket, head, request, forward))
  const { port } = (yield* listening(agent, 0)).address() as net.AddressInfo
  const asked = upgrade ? "Connection: Upgrade\r\nUpgrade: websocket" : "Connection: close"
  return yield* told(port, `GET / HTTP/1.1\r\nHost: app.test\r\n${asked}\r\n\r\n`)
})

const rest = "Content-Length: 2\r\nConnection: close\r\n\r\nok"
const plain = `HTTP/1.1 200 OK\r\n${rest}`

it.effect("an app's answer arrives, whatever hints came before it", () =>
  Effect.gen(function* () {
    for (const link of ["</a.css>", "</a>; rel=preload, </b>; rel=preload", "<;", "x"]) {
      const seen = yield* behind(`HTTP/1.1 103 Early Hints\r\nLink: ${link}\r\nLink: ${link}\r\n\r\n${plain}`)
      assert.match(seen, /^HTTP\/1\.1 200 OK\r\n[\s\S]*Set-Cookie: fresh=1\r\n[\s\S]*ok$/, link)
    }
  })
)

it.effect("an answer of no known meaning is no answer, and ends nothing else", () =>
  Effect.gen(function* () {
    for (const status of ["000", "099", "101", "600", "999"]) {
      assert.match(yield* behind(`HTTP/1.1 ${status} X\r\n${rest}`), /^HTTP\/1\.1 502 /, status)
    }
    for (const status of ["000", "099", "600"]) {
      assert.match(yield* behind(`HTTP/1.1 ${status} X\r\n${rest}`, true), /^HTTP\/1\.1 502 /, status)
    }
    assert.match(yield* behind(`HTTP/1.1 403 No\r\n${rest}`, true), /^HTTP\/1\.1 403 No\r\n[\s\S]*ok$/)
    assert.strictEqual(yield* behind("nothing like HTTP\r\n\r\n", true), "")
    assert.match(yield* behind("nothing like HTTP\r\n\r\n"), /^HTTP\/1\.1 502 /)
    // Broken off in the middle: the visitor is not told that it was all.
    assert.notInclude(
      yield* behind("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
      "\r\n0\r\n"
    )
  })
)
