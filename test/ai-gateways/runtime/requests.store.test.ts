/** Requests that are wrong, and callers who may not: answers in OpenAI's shape, and nothing is asked of an upstream. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { until } from "#test/setup/wait.ts"
import { endless, says } from "./upstream.ts"
import { newGateway, Providers, settled, worldLayer } from "./world.ts"

const message = { role: "user", content: "hello" }
const good = { model: "svc/fast", messages: [message] }

interface Sent {
  readonly path?: string
  readonly key?: string
  readonly body?: unknown
  readonly raw?: string | Uint8Array
  readonly headers?: Record<string, string>
}

const answerOf = async (response: Response) => {
  const text = await response.text()
  const { error } = JSON.parse(text)
  return { status: response.status, headers: response.headers, text, error }
}

const send = (url: string, { key = "", body = good, raw, headers = {} }: Sent) =>
  fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    body: raw ?? JSON.stringify(body)
  })

const limits = {
  SVC_AI_GATEWAY_RATE_LIMIT: "300",
  SVC_AI_KEY_RATE_LIMIT: "100",
  SVC_AI_GATEWAY_CONCURRENCY: "3",
  SVC_AI_KEY_CONCURRENCY: "2"
}

layer(worldLayer(limits), { excludeTestServices: true, timeout: "2 minutes" })("a request", (it) => {
  it.effect("that is wrong is refused by the name of what is wrong, and neither sent nor charged", () =>
    Effect.gen(function* () {
      const { first, second, anthropic } = yield* Providers
      const gateway = yield* newGateway({ allowedModels: ["svc/fast"] })
      const url = `${gateway.baseURL}/chat/completions`
      const canary = "canary-in-the-prompt"
      const user = (content: unknown) => ({ ...good, messages: [{ role: "user", content }] })
      const deep = `{"model":"svc/fast","messages":${"[".repeat(200)}${"]".repeat(200)}}`
      const cases: ReadonlyArray<readonly [Sent, status: number, code: string, param: string | null]> = [
        [{ raw: "{" }, 400, "invalid_json", null],
        [{ raw: `"${canary}"` }, 400, "invalid_value", null],
        [{ raw: deep }, 400, "invalid_json", null],
        [{ raw: new Uint8Array([123, 255, 125]) }, 400, "invalid_body", null],
        [{ body: user("x".repeat(1024 * 1024)) }, 413, "payload_too_large", null],
        [{ headers: { "content-encoding": "gzip" } }, 415, "unsupported_content_encoding", null],
        [{ body: { messages: [message] } }, 400, "invalid_value", "model"],
        [{ body: { ...good, model: "gpt-5" } }, 404, "model_not_found", "model"],
        [{ body: { ...good, model: "svc/reasoning" } }, 404, "model_not_found", "model"],
        [{ body: { model: "svc/fast" } }, 400, "invalid_value", "messages"],
        [{ body: { ...good, messages: [] } }, 400, "invalid_value", "messages"],
        [{ body: { ...good, logit_bias: { 1: canary } } }, 400, "unknown_parameter", "logit_bias"],
        [{ body: { ...good, store: true } }, 400, "unknown_parameter", "store"],
        [{ body: { ...good, n: 2 } }, 400, "invalid_value", "n"],
        [{ body: { ...good, max_tokens: -1 } }, 400, "invalid_value", "max_tokens"],
        [{ body: { ...good, max_tokens: 1.5 } }, 400, "invalid_value", "max_tokens"],
        [{ body: { ...good, max_tokens: 101 } }, 400, "invalid_value", "max_tokens"],
        [{ body: { ...good, max_tokens: 5, max_completion_tokens: 5 } }, 400, "invalid_value", "max_tokens"],
        [{ body: { ...good, temperature: 2.1 } }, 400, "invalid_value", "temperature"],
        [{ body: { ...good, temperature: canary } }, 400, "invalid_value", "temperature"],
        [{ body: { ...good, stop: ["a", "b", "c", "d", "e"] } }, 400, "invalid_value", "stop"],
        [{ body: { ...good, stream_options: {} } }, 400, "invalid_value", "stream_options"],
        [
          { body: { ...good, messages: [{ role: canary, content: "x" }] } },
          400,
          "invalid_value",
          "messages[0]"
        ],
        [
          { body: { ...good, messages: [{ ...message, secret: canary }] } },
          400,
          "unknown_parameter",
          "messages[0].secret"
        ],
        [{ body: user({ canary }) }, 400, "invalid_value", "messages[0].content"],
        [
          { body: user([{ type: "input_audio", data: canary }]) },
          400,
          "invalid_value",
          "messages[0].content"
        ],
        [
          { body: user([{ type: "image_url", image_url: { url: `file:///${canary}` } }]) },
          400,
          "invalid_value",
          "messages[0].content[0].image_url.url"
        ],
        [
          { body: user([{ type: "image_url", image_url: { url: `https://127.0.0.1/${canary}` } }]) },
          400,
          "unsupported_parameter",
          "messages[0].content[0].image_url.url"
        ],
        [
          { body: { ...good, tools: [{ type: "function", function: { name: canary.repeat(9) } }] } },
          400,
          "invalid_value",
          "tools[0].function.name"
        ],
        [{ body: { ...good, response_format: { type: canary } } }, 400, "invalid_value", "response_format"]
      ]
      yield* Effect.promise(async () => {
        for (const [sent, status, code, param] of cases) {
          const what = JSON.stringify(sent).slice(0, 200)
          const answer = await answerOf(await send(url, { key: gateway.apiKey, ...sent }))
          assert.strictEqual(answer.status, status, `${what}: ${answer.text}`)
          assert.strictEqual(answer.error.code, code, `${what}: ${answer.text}`)
          assert.strictEqual(answer.error.type, "invalid_request_error", what)
          assert.isTrue(
            param === null ? answer.error.param === null : String(answer.error.param).startsWith(param),
            `${what}: ${answer.text}`
          )
          assert.notInclude(answer.error.message, canary, what)
          assert.strictEqual(answer.headers.get("x-should-retry"), "false", what)
        }
      })
      const { usage } = yield* settled(gateway, 0)
      assert.strictEqual(usage.spentUsd, 0)
      assert.lengthOf([...first.seen, ...second.seen, ...anthropic.seen], 0)
    })
  )

  it.effect("of somebody who may not is refused", () =>
    Effect.gen(function* () {
      const plane = yield* Plane
      const { first } = yield* Providers
      const before = first.seen.length
      const mine = yield* newGateway()
      const theirs = yield* newGateway()
      const url = (name: string) => `${plane.url}/v1/runtime/ai/${name}/chat/completions`
      const cases = [
        [url(mine.name), "", 401, "missing_api_key"],
        [url(mine.name), "svcgw_wrong", 401, "invalid_api_key"],
        [url(mine.name), plane.apiKey, 401, "invalid_api_key"],
        [url(mine.name), theirs.apiKey, 404, "gateway_not_found"],
        [url("none"), mine.apiKey, 404, "gateway_not_found"]
      ] as const
      yield* Effect.promise(async () => {
        for (const [to, key, status, code] of cases) {
          const answer = await answerOf(await send(to, { key }))
          assert.deepStrictEqual([answer.status, answer.error.code], [status, code], `${to} ${key}`)
        }
      })
      yield* plane.sql(
        `update organization set billing_status = 'unpaid' where id = '${mine.path.split("/")[3]}'`
      )
      const unpaid = yield* Effect.promise(async () =>
        answerOf(await send(url(mine.name), { key: mine.apiKey }))
      )
      assert.deepStrictEqual([unpaid.status, unpaid.error.code], [402, "billing_inactive"])
      assert.strictEqual(first.seen.length, before)
    })
  )

  it.effect("of a caller who was here before is judged by what holds now", () =>
    Effect.gen(function* () {
      const plane = yield* Plane
      const { first } = yield* Providers
      const gateway = yield* newGateway({ allowedModels: ["svc/reasoning"] })
      first.behave(says(["hello"]))
      const before = first.seen.length
      const url = `${gateway.baseURL}/chat/completions`
      const call = Effect.promise(async () => {
        const response = await send(url, { key: gateway.apiKey })
        const body = JSON.parse(await response.text())
        return [response.status, body.error?.code ?? body.choices[0].message.content]
      })
      const change = (body: object) => plane.call("PATCH", gateway.path, { token: gateway.token, body })
      const bill = (status: string) =>
        plane.sql(
          `update organization set billing_status = '${status}' where id = '${gateway.path.split("/")[3]}'`
        )
      assert.deepStrictEqual(yield* call, [404, "model_not_found"])
      yield* change({ allowedModels: ["svc/fast"] })
      assert.deepStrictEqual(yield* call, [200, "hello"])
      yield* bill("unpaid")
      assert.deepStrictEqual(yield* call, [402, "billing_inactive"])
      yield* bill("active")
      assert.deepStrictEqual(yield* call, [200, "hello"])
      yield* change({ allowedModels: ["svc/reasoning"] })
      assert.deepStrictEqual(yield* call, [404, "model_not_found"])
      yield* change({ allowedModels: ["svc/fast"] })
      assert.deepStrictEqual(yield* call, [200, "hello"])
      yield* plane.call("DELETE", `${gateway.path}/keys/${gateway.keyId}`, { token: gateway.token })
      assert.deepStrictEqual(yield* call, [401, "invalid_api_key"])
      assert.deepStrictEqual(yield* call, [401, "invalid_api_key"])
      // Nothing was sent but what was answered, and nothing is held.
      assert.strictEqual(first.seen.length - before, 3)
      yield* settled(gateway, 3)
    })
  )

  it.effect("for a model that has no upstream is a 503 in OpenAI's shape", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway({ allowedModels: ["svc/reasoning"] })
      const answer = yield* Effect.promise(async () =>
        answerOf(
          await send(`${gateway.baseURL}/chat/completions`, {
            key: gateway.apiKey,
            body: { ...good, model: "svc/reasoning" }
          })
        )
      )
      assert.deepStrictEqual([answer.status, answer.error.code], [503, "model_unavailable"])
    })
  )

  it.effect("is one of so many at once", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const url = `${gateway.baseURL}/chat/completions`
      first.behave(endless())
      yield* Effect.promise(async () => {
        const running = await Promise.all(
          [1, 2].map(() => send(url, { key: gateway.apiKey, body: { ...good, stream: true } }))
        )
        const refused = await answerOf(await send(url, { key: gateway.apiKey }))
        assert.deepStrictEqual([refused.status, refused.error.code], [429, "too_many_calls"])
        assert.strictEqual(refused.headers.get("x-should-retry"), "true")
        for (const one of running) await one.body?.cancel()
        first.behave(says(["fine"]))
        await until(
          "there is room again",
          async () => (await send(url, { key: gateway.apiKey })).status === 200
        )
      })
    })
  )

  it.effect("is one of so many a minute, in OpenAI's header fields", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const url = `${gateway.baseURL}/chat/completions`
      first.behave(says(["fine"]))
      yield* Effect.promise(async () => {
        const fine = await send(url, { key: gateway.apiKey })
        assert.strictEqual(fine.headers.get("x-ratelimit-limit-requests"), "100")
        assert.isBelow(Number(fine.headers.get("x-ratelimit-remaining-requests")), 100)
        await fine.text()
        for (let call = 0; call < 300; call++) {
          const answer = await answerOf(await send(url, { key: gateway.apiKey, body: {} }))
          if (answer.status === 400) continue
          assert.deepStrictEqual([answer.status, answer.error.code], [429, "rate_limit_exceeded"])
          assert.strictEqual(answer.error.type, "rate_limit_error")
          assert.isAbove(Number(answer.headers.get("retry-after")), 0)
          assert.match(answer.headers.get("x-ratelimit-reset-requests") ?? "", /^\d+s$/)
          return
        }
        assert.fail("there was no limit")
      })
    })
  )
})
