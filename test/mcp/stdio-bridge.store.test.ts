/** What the bridge for clients that know no HTTP does with messages. Real clients: `test/agents/command-line.test.ts`. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import { PassThrough } from "node:stream"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Invocation } from "#src/cli/invocation.ts"
import { bridge } from "#src/mcp/stdio-bridge.ts"
import { recorded } from "#test/cli/svc.ts"
import { until } from "#test/setup/wait.ts"

interface Received {
  readonly text: string
  readonly headers: IncomingHttpHeaders
  readonly response: ServerResponse
  ended: boolean
}

/** A bridge, and the other end of it in the hands of the test. */
const bridged = Effect.gen(function* () {
  const received: Array<Received> = []
  const server = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const made = createServer((request, response) => {
        let text = ""
        request.on("data", (chunk: Buffer) => (text += chunk.toString()))
        request.on("end", () => {
          const one: Received = { text, headers: request.headers, response, ended: false }
          response.once("close", () => (one.ended = true))
          received.push(one)
        })
      })
      await new Promise<void>((resolve) => made.listen(0, "127.0.0.1", resolve))
      return made
    }),
    (made) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            made.close(() => resolve())
            made.closeAllConnections()
          })
      )
  )
  const address = server.address()
  const port = typeof address === "object" ? address?.port : undefined
  const run = recorded({ cwd: "/", env: {} })
  const stdin = new PassThrough()
  const running = yield* bridge({
    url: `http://127.0.0.1:${port}/mcp`,
    send: Effect.succeed(fetch),
    hint: "Sign in"
  }).pipe(Effect.provideService(Invocation, { ...run.invocation, stdin }), Effect.forkScoped)
  const messages = () =>
    run
      .stdout()
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line))
  return {
    stdin,
    ended: Fiber.join(running),
    stderr: run.stderr,
    write: (...sent: ReadonlyArray<unknown>) => {
      for (const message of sent) stdin.write(`${JSON.stringify(message)}\n`)
    },
    /** The request with this in it. */
    request: (part: string) =>
      Effect.promise(() => until(part, () => received.find(({ text }) => text.includes(part)))),
    received,
    message: (id: unknown) =>
      Effect.promise(() => until(`message ${id}`, () => messages().find((message) => message.id === id)))
  }
})

const call = (id: number, name: string, params: Record<string, unknown> = {}) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, ...params }
})
const json = { "content-type": "application/json" }

it.live("header fields say what the body says, by the revision that the client speaks", () =>
  Effect.gen(function* () {
    const { message, request, stdin, write } = yield* bridged
    const _meta = { "io.modelcontextprotocol/protocolVersion": "2026-07-28" }
    write(call(1, "search", { _meta }), call(2, "Größe", { _meta }))
    const [plain, encoded] = [yield* request('"id":1'), yield* request('"id":2')]
    assert.deepInclude(plain.headers, {
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "search",
      accept: "application/json, text/event-stream"
    })
    assert.strictEqual(encoded.headers["mcp-name"], `=?base64?${btoa("GrÃ¶Ã\u009fe")}?=`)

    write({ jsonrpc: "2.0", id: 3, method: "initialize", params: { protocolVersion: "2025-11-25" } })
    const begun = yield* request('"initialize"')
    assert.isUndefined(begun.headers["mcp-protocol-version"])
    // As events, of which the last one answers; what is cut into pieces is put together.
    begun.response.writeHead(200, { "content-type": "text/event-stream" })
    begun.response.write('data: {"jsonrpc":"2.0","method":"notifications/message","id":"first"}\n\n')
    begun.response.write('data: {"jsonrpc":"2.0","id":3,"res')
    begun.response.end('ult":{"protocolVersion":"2025-06-18"}}\n\n')
    yield* message("first")
    yield* message(3)
    write(call(4, "search"))
    const later = yield* request('"id":4')
    assert.strictEqual(later.headers["mcp-protocol-version"], "2025-06-18")
    assert.isUndefined(later.headers["mcp-method"])
    stdin.end()
  }).pipe(Effect.scoped)
)

it.live("what goes wrong is an answer to the message that asked", () =>
  Effect.gen(function* () {
    const { ended, message, request, stderr, stdin, write } = yield* bridged
    stdin.write("not JSON\n\n")
    assert.strictEqual((yield* message(null)).error.code, -32700)
    write(call(1, "a"), call(2, "b"), call(3, "c"), call(4, "d"))
    const fail = (part: string, status: number, body: string, headers: Record<string, string> = json) =>
      Effect.map(request(part), ({ response }) => response.writeHead(status, headers).end(body))
    yield* fail('"id":1', 502, "<h1>Bad gateway</h1>", { "content-type": "text/html" })
    yield* fail('"id":2', 401, '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Who are you?"}}')
    yield* fail('"id":3', 400, '{"jsonrpc":"2.0","id":3,"error":{"code":-32020,"message":"as it is"}}')
    ;(yield* request('"id":4')).response.destroy()
    const messages = yield* Effect.forEach([1, 2, 3, 4], message)
    const [gateway, stranger, passed, broken] = messages.map(({ error }) => error)
    assert.include(gateway.message, "answers 502")
    assert.strictEqual(stranger.message, "Who are you?. Sign in")
    assert.deepStrictEqual(passed, { code: -32020, message: "as it is" })
    assert.include(broken.message, "cannot be reached")
    // Nobody waits for an answer to a notification.
    write({ jsonrpc: "2.0", method: "notifications/initialized" })
    yield* fail("notifications/initialized", 500, "")
    yield* Effect.promise(() => until("a line", () => stderr().includes("answers 500")))
    stdin.end()
    yield* ended
  }).pipe(Effect.scoped)
)

it.live("a request that is cancelled ends, too many at once are refused, and the end waits for answers", () =>
  Effect.gen(function* () {
    const { ended, message, received, request, stdin, write } = yield* bridged
    write(call(0, "cancelled"))
    const cancelled = yield* request("cancelled")
    write({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 0 } })
    yield* Effect.promise(() => until("its end", () => cancelled.ended))
    write(...Array.from({ length: 65 }, (_, i) => call(i + 1, "many")))
    assert.include((yield* message(65)).error.message, "at once")
    yield* Effect.promise(() => until("all others", () => received.length === 65))
    stdin.end()
    for (const { response, text } of received.slice(1))
      response
        .writeHead(200, json)
        .end(JSON.stringify({ jsonrpc: "2.0", id: JSON.parse(text).id, result: {} }))
    yield* ended
    for (let id = 1; id <= 64; id++) assert.deepStrictEqual((yield* message(id)).result, {})
  }).pipe(Effect.scoped)
)
