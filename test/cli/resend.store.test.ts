/** Requests on connections that break. */
import * as http from "node:http"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { resending } from "#src/cli/resend.ts"

type Behaviour = (response: http.ServerResponse, count: number) => void

/** A server that does as it is told, and what it was asked for. */
const server = (behave: Behaviour) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const asked: Array<readonly [method: string, key: string | undefined]> = []
      const listening = http.createServer((request, response) => {
        asked.push([request.method ?? "", request.headers["idempotency-key"] as string | undefined])
        request.resume().on("end", () => behave(response, asked.length))
      })
      await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve))
      const address = listening.address()
      if (address === null || typeof address === "string") throw new Error("no port")
      return { listening, asked, url: `http://127.0.0.1:${address.port}/` }
    }),
    ({ listening }) =>
      Effect.sync(() => {
        listening.closeAllConnections()
        listening.close()
      })
  )
const lose: Behaviour = (response) => response.socket?.destroy()
const send = (url: string, method: string, init: RequestInit = {}) =>
  Effect.tryPromise(() => resending(fetch, [1, 1, 1])(url, { method, ...init }))

it.live("a POST is repeated with the same key after its connection was lost, and two have two keys", () =>
  Effect.gen(function* () {
    const { url, asked } = yield* server((response, count) =>
      count === 1
        ? lose(response, count)
        : count === 2
          ? // The answer breaks off.
            response.writeHead(201, { "content-length": "100" }).write("half", () => lose(response, count))
          : count === 3
            ? response.writeHead(409).end('{"code":"idempotency_key_in_flight"}')
            : response.writeHead(201).end("made")
    )
    const answer = yield* send(url, "POST", { body: "{}" })
    assert.deepStrictEqual([answer.status, yield* Effect.promise(() => answer.text())], [201, "made"])
    assert.strictEqual(asked.length, 4)
    assert.match(asked[0]?.[1] ?? "", /^[0-9a-f-]{36}$/)
    assert.strictEqual(new Set(asked.map(([, key]) => key)).size, 1)
    yield* send(url, "POST", { body: "{}" })
    assert.strictEqual(new Set(asked.map(([, key]) => key)).size, 2)
    const given = yield* send(url, "POST", { headers: { "Idempotency-Key": "mine" } })
    assert.deepStrictEqual([given.status, asked.at(-1)], [201, ["POST", "mine"]])
  }).pipe(Effect.scoped)
)

it.live("tries are bounded, PATCH is sent once, and answers are not repeated", () =>
  Effect.gen(function* () {
    const broken = yield* server(lose)
    for (const method of ["GET", "PUT", "DELETE", "PATCH"]) {
      assert.strictEqual((yield* Effect.exit(send(broken.url, method)))._tag, "Failure")
    }
    const times = (wanted: string) => broken.asked.filter(([method]) => method === wanted).length
    assert.deepStrictEqual(["GET", "PUT", "DELETE", "PATCH"].map(times), [4, 4, 4, 1])
    assert.isTrue(broken.asked.every(([, key]) => key === undefined))
    const failing = yield* server((response) => response.writeHead(503).end())
    assert.strictEqual((yield* send(failing.url, "GET")).status, 503)
    const taken = yield* server((response) =>
      response.writeHead(409).end('{"code":"idempotency_key_in_flight"}')
    )
    assert.strictEqual((yield* send(taken.url, "POST")).status, 409)
    const empty = yield* server((response) => response.writeHead(204).end())
    assert.strictEqual((yield* send(empty.url, "DELETE")).status, 204)
    assert.deepStrictEqual([failing.asked.length, taken.asked.length, empty.asked.length], [1, 1, 1])
  }).pipe(Effect.scoped)
)
