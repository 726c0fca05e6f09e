/** Other clients of OpenAI's API against a gateway, over upstreams of both dialects: they get the same answers. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { assert, layer } from "@effect/vitest"
import { HumanMessage, SystemMessage } from "@langchain/core/messages"
import { ChatOpenAI } from "@langchain/openai"
import { APICallError, generateText, jsonSchema, streamText, tool } from "ai"
import * as Effect from "effect/Effect"
import OpenAI from "openai"
import { anthropicSays, callsTool, refuses, says } from "./upstream.ts"
import { newGateway, Providers, providerKey, settled, worldLayer } from "./world.ts"

const words = ["Hello ", "there ", "you"]
const city = jsonSchema<{ readonly city: string }>({
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false
})
const toolParts = ['{"ci', 'ty":"', 'Oslo"}']
const png = "iVBORw0KGgo="

/** Both stand-ins say the words, or call the tool. */
const behave = Effect.fnUntraced(function* (what: "words" | "tool") {
  const { first, anthropic } = yield* Providers
  first.behave(what === "words" ? says(words) : callsTool)
  anthropic.behave(
    what === "words" ? anthropicSays(words) : anthropicSays([], { name: "weather", parts: toolParts })
  )
})

const models = ["svc/fast", "svc/balanced"] as const

layer(worldLayer(), { excludeTestServices: true, timeout: "2 minutes" })("clients", (it) => {
  it.effect.each(models)("Vercel's AI SDK gets text, streams and calls of tools of %s", (model) =>
    Effect.gen(function* () {
      const gateway = yield* newGateway()
      const provider = createOpenAICompatible({
        name: "svc",
        baseURL: gateway.baseURL,
        apiKey: gateway.apiKey,
        includeUsage: true
      })(model)
      yield* behave("words")
      yield* Effect.promise(async () => {
        const whole = await generateText({ model: provider, prompt: "hello", maxRetries: 0 })
        assert.strictEqual(whole.text, words.join(""))
        assert.strictEqual(whole.finishReason, "stop")
        assert.strictEqual(whole.usage.inputTokens, 11)
        const streamed = streamText({ model: provider, system: "be kind", prompt: "hello", maxRetries: 0 })
        const parts: Array<string> = []
        for await (const part of streamed.textStream) parts.push(part)
        assert.deepStrictEqual(parts, words)
        assert.strictEqual((await streamed.usage).outputTokens, words.length)
      })
      yield* behave("tool")
      yield* Effect.promise(async () => {
        const weather = tool({
          description: "The weather",
          inputSchema: city,
          execute: () => "rain"
        })
        const called = await generateText({
          model: provider,
          prompt: "hello",
          tools: { weather },
          maxRetries: 0
        })
        assert.deepStrictEqual(called.toolCalls[0]?.input, { city: "Oslo" })
        const streamed = streamText({ model: provider, prompt: "hello", tools: { weather }, maxRetries: 0 })
        assert.deepStrictEqual((await streamed.toolCalls)[0]?.input, { city: "Oslo" })
        assert.strictEqual(await streamed.finishReason, "tool-calls")
      })
      yield* settled(gateway, 4)
    })
  )

  it.effect("Vercel's AI SDK understands failures", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway({ maxRetries: 0 })
      first.behave(refuses(429))
      const model = createOpenAICompatible({ ...gateway, name: "svc" })("svc/fast")
      const error = yield* Effect.promise(async () => {
        try {
          return await generateText({ model, prompt: "hello", maxRetries: 0 })
        } catch (error) {
          return error
        }
      })
      if (!APICallError.isInstance(error)) return assert.fail("it is no error of the provider")
      assert.strictEqual(error.statusCode, 429)
      assert.include(error.message, "at its limit")
      assert.lengthOf(second.seen, 0)
    })
  )

  it.effect.each(models)("LangChain's ChatOpenAI gets text and streams of %s", (model) =>
    Effect.gen(function* () {
      const gateway = yield* newGateway()
      yield* behave("words")
      const chat = new ChatOpenAI({
        model,
        apiKey: gateway.apiKey,
        maxRetries: 0,
        maxTokens: 50,
        configuration: { baseURL: gateway.baseURL }
      })
      yield* Effect.promise(async () => {
        const messages = [new SystemMessage("be kind"), new HumanMessage("hello")]
        const whole = await chat.invoke(messages)
        assert.strictEqual(whole.text, words.join(""))
        assert.include(JSON.stringify(whole.usage_metadata), '"input_tokens":11')
        let text = ""
        for await (const one of await chat.stream(messages)) text += one.text
        assert.strictEqual(text, words.join(""))
      })
      yield* behave("tool")
      yield* Effect.promise(async () => {
        const parameters = { type: "object", properties: { city: { type: "string" } } }
        const bound = chat.bindTools([{ type: "function", function: { name: "weather", parameters } }])
        const called = await bound.invoke("hello")
        assert.deepInclude(called.tool_calls?.[0], { name: "weather", args: { city: "Oslo" } })
      })
      yield* settled(gateway, 3)
    })
  )

  it.effect("an upstream of Anthropic's dialect is asked in it, for everything that a request says", () =>
    Effect.gen(function* () {
      const { anthropic } = yield* Providers
      const gateway = yield* newGateway()
      const client = new OpenAI({ ...gateway, maxRetries: 0 })
      const parameters = { type: "object", properties: { city: { type: "string" } } }
      yield* behave("words")
      const answer = yield* Effect.promise(() =>
        client.chat.completions.create({
          model: "svc/balanced",
          max_completion_tokens: 9,
          temperature: 0.5,
          stop: "END",
          user: "somebody",
          parallel_tool_calls: false,
          tool_choice: { type: "function", function: { name: "weather" } },
          tools: [
            { type: "function", function: { name: "weather", description: "The weather", parameters } }
          ],
          messages: [
            { role: "system", content: "be kind" },
            { role: "developer", content: [{ type: "text", text: "be brief" }] },
            {
              role: "user",
              content: [
                { type: "text", text: "look" },
                { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
                { type: "image_url", image_url: { url: "https://example.com/a.png" } }
              ]
            },
            {
              role: "assistant",
              content: "",
              tool_calls: [
                { id: "a", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } },
                { id: "b", type: "function", function: { name: "weather", arguments: "" } }
              ]
            },
            { role: "tool", tool_call_id: "a", content: "rain" },
            { role: "tool", tool_call_id: "b", content: "sun" },
            { role: "user", content: "so?" }
          ]
        })
      )
      assert.deepInclude(answer.usage, {
        prompt_tokens: 11,
        completion_tokens: 3,
        prompt_tokens_details: { cached_tokens: 2 }
      })
      const sent = anthropic.seen.at(-1)
      assert.strictEqual(sent?.path, "/v1/messages")
      assert.deepInclude(sent?.headers, { "x-api-key": providerKey, "anthropic-version": "2023-06-01" })
      assert.deepStrictEqual(sent?.body, {
        model: "anthropic-real-model",
        max_tokens: 9,
        stream: true,
        system: "be kind\n\nbe brief",
        messages: [
          {
            role: "user",
            content: [
              { type: "text", text: "look" },
              { type: "image", source: { type: "base64", media_type: "image/png", data: png } },
              { type: "image", source: { type: "url", url: "https://example.com/a.png" } }
            ]
          },
          {
            role: "assistant",
            content: [
              { type: "tool_use", id: "a", name: "weather", input: { city: "Oslo" } },
              { type: "tool_use", id: "b", name: "weather", input: {} }
            ]
          },
          {
            role: "user",
            content: [
              { type: "tool_result", tool_use_id: "a", content: "rain" },
              { type: "tool_result", tool_use_id: "b", content: "sun" },
              { type: "text", text: "so?" }
            ]
          }
        ],
        temperature: 0.5,
        stop_sequences: ["END"],
        metadata: { user_id: "somebody" },
        tools: [{ name: "weather", description: "The weather", input_schema: parameters }],
        tool_choice: { type: "tool", name: "weather", disable_parallel_tool_use: true }
      })
      const { calls } = yield* settled(gateway, 1)
      // 9 tokens at full price, 2 from the cache, 3 of output.
      assert.deepInclude(calls[0], { upstream: "anthropic", inputTokens: 11, costUsd: 0.009 + 0.001 + 0.006 })
    })
  )

  it.effect("an answer in JSON comes from a tool there, and is content all the same", () =>
    Effect.gen(function* () {
      const { anthropic } = yield* Providers
      const gateway = yield* newGateway()
      const client = new OpenAI({ ...gateway, maxRetries: 0 })
      anthropic.behave(anthropicSays([], { name: "place", parts: toolParts }))
      const schema = { type: "object", properties: { city: { type: "string" } } }
      const answer = yield* Effect.promise(() =>
        client.chat.completions.create({
          model: "svc/balanced",
          messages: [{ role: "user", content: "where?" }],
          response_format: { type: "json_schema", json_schema: { name: "place", schema } }
        })
      )
      assert.strictEqual(answer.choices[0]?.message.content, '{"city":"Oslo"}')
      assert.strictEqual(answer.choices[0]?.finish_reason, "stop")
      assert.deepInclude(anthropic.seen.at(-1)?.body, { tool_choice: { type: "tool", name: "place" } })
      assert.deepStrictEqual(anthropic.seen.at(-1)?.body.tools[0].input_schema, schema)
    })
  )

  it.effect("a tool without arguments gets an empty object of them", () =>
    Effect.gen(function* () {
      const { anthropic } = yield* Providers
      const gateway = yield* newGateway()
      for (const parts of [[], [""]]) {
        anthropic.behave(anthropicSays([], { name: "now", parts }))
        const answer = yield* Effect.promise(() =>
          new OpenAI({ ...gateway, maxRetries: 0 }).chat.completions.create({
            model: "svc/balanced",
            messages: [{ role: "user", content: "when?" }],
            tools: [{ type: "function", function: { name: "now" } }]
          })
        )
        const [call] = answer.choices[0]?.message.tool_calls ?? []
        assert.strictEqual(call?.type === "function" && call.function.arguments, "{}")
      }
    })
  )

  it.effect("what a dialect has no way to say is refused by its name, and not dropped", () =>
    Effect.gen(function* () {
      const { anthropic } = yield* Providers
      const gateway = yield* newGateway()
      const before = anthropic.seen.length
      const client = new OpenAI({ ...gateway, maxRetries: 0 })
      for (const [field, value] of [
        ["presence_penalty", 1],
        ["frequency_penalty", -1],
        ["temperature", 1.5],
        ["reasoning_effort", "low"],
        ["seed", 4],
        ["tool_choice", "required"],
        ["tools[0].function.strict", [{ type: "function", function: { name: "weather", strict: true } }]],
        [
          "response_format.json_schema.strict",
          { type: "json_schema", json_schema: { name: "place", schema: {}, strict: true } }
        ],
        ["messages[0].name", [{ role: "user", content: "hello", name: "Ann" }]],
        [
          "messages[0].content[0].image_url.detail",
          [
            {
              role: "user",
              content: [
                { type: "image_url", image_url: { url: `data:image/png;base64,${png}`, detail: "low" } }
              ]
            }
          ]
        ]
      ] as const) {
        const error = yield* Effect.promise(async () => {
          try {
            return await client.chat.completions.create({
              model: "svc/balanced",
              messages: [{ role: "user", content: "hello" }],
              [field.replace(/[[.].*/, "")]: value
            })
          } catch (error) {
            return error
          }
        })
        if (!(error instanceof OpenAI.APIError)) return assert.fail(field)
        assert.deepStrictEqual([error.status, error.code, error.param], [400, "unsupported_parameter", field])
      }
      assert.strictEqual(anthropic.seen.length, before)
      yield* settled(gateway, 0)
    })
  )
})
