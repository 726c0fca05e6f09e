/** The operator's limits: nobody holds a call for longer than they say, and none is sent where they do not allow it. */
import * as net from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { until } from "#test/setup/wait.ts"
import { endless, says } from "./upstream.ts"
import { newGateway, Providers, settled, type TestGateway, worldLayer } from "./world.ts"

const body = { model: "svc/fast", messages: [{ role: "user", content: "hello" }] }

/** A connection that has sent a request for a stream, and never reads. */
const unread = ({ baseURL, apiKey }: TestGateway) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const { hostname, port, pathname } = new URL(`${baseURL}/chat/completions`)
      const text = JSON.stringify({ ...body, stream: true })
      const socket = net.connect({ host: hostname, port: Number(port) })
      socket.pause()
      socket.on("error", () => {})
      socket.write(
        `POST ${pathname} HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${apiKey}\r\n` +
          `content-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`
      )
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

const calls = 6
const limits = { outputTokens: 10, idleSeconds: 1, totalSeconds: 1 }

layer(worldLayer({ SVC_AI_KEY_CONCURRENCY: String(calls) }, { limits }), {
  excludeTestServices: true,
  timeout: "2 minutes"
})("a limit", (it) => {
  it.effect("on the whole answer ends calls of clients that never read, and no upstream is blamed", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(endless("x".repeat(256 * 1024)))
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Effect.replicateEffect(unread(gateway), calls)
          // Their connections are open still.
          const { calls: rows } = yield* settled(gateway, calls)
          for (const row of rows) assert.deepInclude(row, { status: 504, upstream: "first", estimated: true })
          assert.isTrue(first.seen.every(({ aborted }) => aborted))
          first.behave(says(["fine"]))
          const before = first.seen.length
          const again = () => Effect.runPromise(send(gateway, {}))
          yield* Effect.promise(() =>
            until("their places are free", async () => (await again()).includes("fine"))
          )
          assert.strictEqual(first.seen.length, before + 1)
        })
      )
    })
  )

  it.effect("on tokens of output leaves out who cannot give as many as are asked for", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(says(["short"]))
      second.behave(says(["long"]))
      const before = first.seen.length
      assert.include(yield* send(gateway, { max_tokens: 50 }), "long")
      assert.strictEqual(first.seen.length, before)
      assert.strictEqual(second.seen.at(-1)?.body.max_tokens, 50)
      assert.include(yield* send(gateway, {}), "short")
      assert.strictEqual(first.seen.at(-1)?.body.max_tokens, 10)
      assert.include(yield* send(gateway, { max_tokens: 101 }), "must be at most 100")
    })
  )
})

const send = ({ baseURL, apiKey }: TestGateway, more: object) =>
  Effect.promise(async () => {
    const response = await fetch(`${baseURL}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${apiKey}` },
      body: JSON.stringify({ ...body, ...more })
    })
    return response.text()
  })
