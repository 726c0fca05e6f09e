/** OpenAI's own client against a gateway. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import OpenAI, { APIError } from "openai"
import type { ChatCompletionChunk } from "openai/resources/chat/completions"
import { asDocumented } from "#test/setup/documented.ts"
import { until } from "#test/setup/wait.ts"
import { callsTool, endless, refuses, says, stalls } from "./upstream.ts"
import { newGateway, Providers, providerKey, settled, type TestGateway, worldLayer } from "./world.ts"

const clientOf = ({ baseURL, apiKey }: TestGateway, maxRetries = 0) =>
  new OpenAI({ baseURL, apiKey, maxRetries })

const hello = [{ role: "user" as const, content: "hello" }]
const weather = {
  type: "function" as const,
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] }
  }
}

const failure = async (call: Promise<unknown>): Promise<APIError> => {
  try {
    await call
  } catch (error) {
    if (error instanceof APIError) return error
    throw error
  }
  return assert.fail("the call succeeded")
}

layer(worldLayer(), { excludeTestServices: true, timeout: "2 minutes" })("OpenAI's client", (it) => {
  it.effect("gets a completion under the neutral model's name, and pays what the upstream counted", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(says(["Hello ", "there"]))
      const answer = yield* Effect.promise(() =>
        clientOf(gateway).chat.completions.create({ model: "svc/fast", messages: hello, max_tokens: 7 })
      )
      assert.strictEqual(answer.choices[0]?.message.content, "Hello there")
      assert.strictEqual(answer.choices[0]?.finish_reason, "stop")
      assert.strictEqual(answer.model, "svc/fast")
      assert.match(answer.id, /^chatcmpl-[0-9a-f]{32}$/)
      assert.deepInclude(answer.usage, { prompt_tokens: 11, completion_tokens: 2, total_tokens: 13 })
      const sent = first.seen.at(-1)
      assert.strictEqual(sent?.path, "/v1/chat/completions")
      assert.strictEqual(sent?.headers.authorization, `Bearer ${providerKey}`)
      assert.deepInclude(sent?.body, { model: "first-real-model", max_tokens: 7, stream: true })
      const { usage, calls } = yield* settled(gateway, 1)
      assert.deepInclude(usage, { inputTokens: 11, outputTokens: 2, spentUsd: 0.015 })
      assert.deepInclude(calls[0], { status: 200, upstream: "first", estimated: false, keyId: gateway.keyId })
    })
  )

  it.effect("streams under one id and the neutral name; usage comes only when it is asked for", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const client = clientOf(gateway)
      for (const include_usage of [true, false]) {
        first.behave(says(["a", "b", "c"]))
        const chunks = yield* Effect.promise(async () => {
          const stream = await client.chat.completions.create({
            model: "svc/fast",
            messages: hello,
            stream: true,
            ...(include_usage ? { stream_options: { include_usage } } : {})
          })
          const all: Array<ChatCompletionChunk> = []
          for await (const one of stream) all.push(one)
          return all
        })
        assert.lengthOf(new Set(chunks.map(({ id, model, created }) => `${id} ${model} ${created}`)), 1)
        assert.strictEqual(chunks[0]?.model, "svc/fast")
        assert.notInclude(JSON.stringify(chunks), "provider")
        assert.strictEqual(chunks.map((one) => one.choices[0]?.delta.content ?? "").join(""), "abc")
        const told = chunks.filter(({ usage }) => usage != null)
        assert.lengthOf(told, include_usage ? 1 : 0)
        assert.strictEqual(chunks.at(-1)?.usage?.total_tokens, include_usage ? 14 : undefined)
      }
      yield* settled(gateway, 2)
    })
  )

  it.effect("has tools called, by its helpers for streams too", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const client = clientOf(gateway)
      first.behave(callsTool)
      const [plain, helped] = yield* Effect.promise(async () => {
        const request = { model: "svc/fast", messages: hello, tools: [weather] }
        const whole = await client.chat.completions.create({ ...request, tool_choice: "required" })
        const streamed = await client.chat.completions.stream(request).finalChatCompletion()
        return [whole, streamed] as const
      })
      for (const answer of [plain, helped]) {
        const [call] = answer.choices[0]?.message.tool_calls ?? []
        assert.deepInclude(call, { id: "call_1", type: "function" })
        assert.deepInclude(call?.type === "function" ? call.function : {}, {
          name: "weather",
          arguments: '{"city":"Oslo"}'
        })
        assert.strictEqual(answer.choices[0]?.finish_reason, "tool_calls")
      }
      assert.isNull(plain.choices[0]?.message.content)
      // The conversation goes on with what it was given, and the tool's result.
      first.behave(says(["Rain"]))
      yield* Effect.promise(() =>
        client.chat.completions.create({
          model: "svc/fast",
          messages: [
            ...hello,
            plain.choices[0]?.message ?? assert.fail(),
            { role: "tool", tool_call_id: "call_1", content: "rain" }
          ],
          tools: [weather]
        })
      )
      assert.deepInclude(first.seen.at(-1)?.body.messages[2], { role: "tool", tool_call_id: "call_1" })
    })
  )

  it.effect("that goes away ends the upstream's answer at once, and pays for what came", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(endless())
      yield* Effect.promise(async () => {
        const stream = await clientOf(gateway).chat.completions.create({
          model: "svc/fast",
          messages: hello,
          stream: true
        })
        let words = 0
        for await (const _ of stream) if (++words === 5) stream.controller.abort()
        await until("the upstream is told", () => first.seen.at(-1)?.aborted)
      })
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { status: 499, upstream: "first", estimated: true })
      assert.isAbove(calls[0]?.outputTokens ?? 0, 3)
    })
  )

  it.effect("sees failures as errors of its own, without the provider's words, and sends nothing twice", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway({ maxRetries: 0 })
      // With its own retries on, which it is told to leave.
      const client = clientOf(gateway, 2)
      const create = () => client.chat.completions.create({ model: "svc/fast", messages: hello })
      const cases = [
        [400, 400, "upstream_rejected"],
        [401, 502, "upstream_misconfigured"],
        [403, 502, "upstream_misconfigured"],
        [500, 502, "upstream_error"]
      ] as const
      for (const [theirs, ours, code] of cases) {
        const before = first.seen.length + second.seen.length
        first.behave(refuses(theirs, `Incorrect key ${providerKey}`))
        const error = yield* Effect.promise(() => failure(create()))
        assert.deepStrictEqual([error.status, error.code], [ours, code], `${theirs}`)
        assert.notInclude(JSON.stringify([error, error.message]), "Incorrect")
        assert.strictEqual(first.seen.length + second.seen.length - before, 1, `${theirs}`)
      }
      const { usage } = yield* settled(gateway, cases.length)
      assert.strictEqual(usage.spentUsd, 0)
    })
  )

  it.effect("is told of the budget", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway({ monthlyBudgetUsd: 0.1 })
      const before = first.seen.length
      const create = (max_tokens?: number) =>
        clientOf(gateway).chat.completions.create({
          model: "svc/fast",
          messages: hello,
          ...(max_tokens === undefined ? {} : { max_tokens })
        })
      const error = yield* Effect.promise(() => failure(create()))
      assert.deepStrictEqual(
        [error.status, error.code, error.type],
        [402, "budget_exceeded", "insufficient_quota"]
      )
      assert.strictEqual(first.seen.length, before)
      yield* settled(gateway, 0)
    })
  )

  it.effect("tries again by itself where it is told that this helps", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway({ maxRetries: 0 })
      first.behave(refuses(429, "slow down", { "retry-after": "0" }), says(["ok"]))
      second.behave(says(["second"]))
      const answer = yield* Effect.promise(() =>
        clientOf(gateway, 1).chat.completions.create({ model: "svc/fast", messages: hello })
      )
      assert.strictEqual(answer.choices[0]?.message.content, "ok")
      const { calls } = yield* settled(gateway, 2)
      assert.deepStrictEqual(
        calls.map(({ status }) => status),
        [200, 429]
      )
    })
  )

  it.effect("gets an error in the middle of a stream that its upstream leaves", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(stalls(["once ", "upon "]))
      const got: Array<string> = []
      const error = yield* Effect.promise(async () => {
        const stream = await clientOf(gateway).chat.completions.create({
          model: "svc/fast",
          messages: hello,
          stream: true
        })
        const read = async () => {
          for await (const one of stream) got.push(one.choices[0]?.delta.content ?? "")
        }
        return failure(read())
      })
      assert.strictEqual(error.code, "upstream_timeout")
      assert.strictEqual(got.join(""), "once upon ")
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { status: 504, estimated: true, outputTokens: 4 })
    })
  )

  it.effect("finds in the API document what it sends and gets", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      const exchange = async (method: string, path: string, body?: object) => {
        const sent = body === undefined ? undefined : JSON.stringify(body)
        const response = await fetch(`${gateway.baseURL}${path}`, {
          method,
          headers: { authorization: `Bearer ${gateway.apiKey}`, "content-type": "application/json" },
          ...(sent === undefined ? {} : { body: sent })
        })
        const { status, headers } = response
        const { pathname } = new URL(`${gateway.baseURL}${path}`)
        asDocumented({ method, path: pathname, sent, status, headers, text: await response.text() })
        return status
      }
      const chat = (more: object) =>
        exchange("POST", "/chat/completions", { model: "svc/fast", messages: hello, ...more })
      const statuses = yield* Effect.promise(async () => {
        first.behave(says(["Hello"]))
        const said = [await chat({}), await chat({ stream: true, max_tokens: 5, stop: ["a"] })]
        first.behave(callsTool)
        const called = await chat({ tools: [weather], tool_choice: "auto" })
        first.behave(refuses(400))
        return [...said, called, await chat({}), await chat({ nothing: 1 }), await exchange("GET", "/models")]
      })
      assert.deepStrictEqual(statuses, [200, 200, 200, 400, 400, 200])
    })
  )

  it.effect("finds the models of the gateway", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway({ allowedModels: ["svc/balanced"] })
      const page = yield* Effect.promise(() => clientOf(gateway).models.list())
      assert.deepStrictEqual(
        page.data.map(({ id }) => id),
        ["svc/balanced"]
      )
    })
  )
})
