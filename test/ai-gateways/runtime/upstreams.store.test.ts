/** Upstreams that fail in every way: what the client gets, what is tried next, and what is charged. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Plane } from "#test/setup/control-plane.ts"
import { until } from "#test/setup/wait.ts"
import {
  type Behaviour,
  chunk,
  done,
  endless,
  neverAnswers,
  refuses,
  says,
  sends,
  streaming,
  usageOf,
  write
} from "./upstream.ts"
import { newGateway, Providers, settled, type TestGateway, worldLayer } from "./world.ts"

const body = { model: "svc/fast", messages: [{ role: "user", content: "hello" }] }

const post = (gateway: TestGateway, more: object = {}) =>
  Effect.promise(async () => {
    const response = await fetch(`${gateway.baseURL}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ ...body, ...more })
    })
    const text = await response.text()
    const { status, headers } = response
    return { status, headers, text, code: /"code":"(\w+)"/.exec(text)?.[1] }
  })

const cuts: Behaviour = async (_, response) => {
  streaming(response)
  const text = `${chunk({ content: "once " })}data: {"id":"x","choi`
  await new Promise((sent) => response.write(text, sent))
  response.destroy()
}
const endlessEvent: Behaviour = async (_, response) => {
  streaming(response)
  await write(response, chunk({ content: "once " }))
  await write(response, 'data: {"choices":[{"delta":{"content":"')
  while (await write(response, "x".repeat(64 * 1024)));
}
const hugeAnswer: Behaviour = async (_, response) => {
  streaming(response)
  const piece = chunk({ content: "x".repeat(32 * 1024) })
  for (let at = 0; at < 3_200; at++) if (!(await write(response, piece))) return
  response.end(done)
}
const html = sends(200, { "content-type": "text/html" }, "<html>captive portal</html>")
const noJson = sends(200, { "content-type": "text/event-stream" }, "data: <html>\n\n")
const errorEvent = sends(
  200,
  { "content-type": "text/event-stream" },
  `data: ${JSON.stringify({ error: { message: "the provider's own words" } })}\n\n`
)
/** Failures of upstreams that may have worked on the prompt. */
const keptThePrompt = new Set(["html", "no JSON", "an error as an event", "closes"])
const redirect = sends(302, { location: "http://169.254.169.254/latest/meta-data/" }, "")

layer(worldLayer(), { excludeTestServices: true, timeout: "2 minutes" })("an upstream", (it) => {
  it.effect("that fails before its answer has begun is tried again, and then the next one", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway({ maxRetries: 2 })
      const failing: ReadonlyArray<readonly [string, Behaviour, tries: number]> = [
        ["500", refuses(500), 2],
        ["529", refuses(529), 2],
        ["429", refuses(429), 2],
        ["html", html, 2],
        ["no JSON", noJson, 2],
        ["an error as an event", errorEvent, 2],
        ["closes", (_, response) => void response.destroy(), 2],
        // Another try of the same could not help.
        ["401", refuses(401), 1],
        ["404", refuses(404), 1],
        ["redirect", redirect, 1],
        ["asks for a long pause", refuses(429, "", { "retry-after": "60" }), 1]
      ]
      const prompt = Math.ceil(JSON.stringify({ ...body, stream: true }).length / 3)
      for (const [at, [what, behaviour, tries]] of failing.entries()) {
        // A success in between, for the breaker.
        first.behave(says(["fine"]))
        assert.strictEqual((yield* post(gateway)).status, 200)
        const before = first.seen.length
        first.behave(behaviour)
        second.behave(says(["from the second"]))
        const answer = yield* post(gateway, { stream: true })
        assert.include(answer.text, "from the second", what)
        assert.strictEqual(first.seen.length - before, tries, what)
        const { calls } = yield* settled(gateway, 2 * (at + 1))
        const input = 11 + (keptThePrompt.has(what) ? tries * prompt : 0)
        assert.deepInclude(
          calls[0],
          { status: 200, upstream: "second", inputTokens: input, outputTokens: 1 },
          what
        )
        assert.closeTo(calls[0]?.costUsd ?? 0, (input + 2) / 1_000, 1e-9, what)
      }
    })
  )

  it.effect("that fails at a cost is not tried again where the budget does not allow it", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const more = { max_tokens: 10 }
      const bytes = JSON.stringify({ ...body, ...more }).length
      // A try may cost a token for each byte and ten of output; what the failed one cost does not fit beside it.
      const gateway = yield* newGateway({ monthlyBudgetUsd: (bytes + 21) / 1_000 })
      const before = first.seen.length + second.seen.length
      first.behave(html)
      const answer = yield* post(gateway, more)
      assert.deepStrictEqual([answer.status, answer.code], [402, "budget_exceeded"])
      assert.strictEqual(first.seen.length + second.seen.length - before, 1)
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { inputTokens: Math.ceil(bytes / 3), outputTokens: 0, estimated: true })
      first.behave(says(["fine"]))
      yield* post(yield* newGateway())
    })
  )

  it.effect("is connected to once for calls after each other, also where its end comes late", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(async (_, response) => {
        streaming(response)
        await write(response, chunk({ content: "fine" }) + chunk({}, "stop") + usageOf(1, 1) + done)
        setImmediate(() => response.end())
      })
      yield* post(gateway)
      const before = first.connections()
      for (let call = 0; call < 5; call++) yield* post(gateway, { stream: call % 2 === 0 })
      assert.isAtMost(first.connections() - before, 1)
      first.behave(says(["fine"]))
    })
  )

  it.effect("that fails once is asked once more", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway()
      const before = second.seen.length
      first.behave(refuses(500), says(["then fine"]))
      assert.include((yield* post(gateway)).text, "then fine")
      assert.strictEqual(second.seen.length, before)
    })
  )

  it.effect("that refuses the request is not tried again, and costs nothing", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway()
      const seen = first.seen.length + second.seen.length
      first.behave(refuses(400, "words", {}, "context_length_exceeded"))
      const answer = yield* post(gateway)
      assert.deepStrictEqual([answer.status, answer.code], [400, "context_length_exceeded"])
      assert.strictEqual(first.seen.length + second.seen.length - seen, 1)
      const { usage } = yield* settled(gateway, 1)
      assert.strictEqual(usage.spentUsd, 0)
    })
  )

  it.effect("at its limit is told as such with its Retry-After, when no other is left", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway()
      first.behave(refuses(429))
      second.behave(refuses(429, "", { "retry-after": "17" }))
      const answer = yield* post(gateway)
      assert.deepStrictEqual([answer.status, answer.code], [429, "upstream_rate_limited"])
      assert.strictEqual(answer.headers.get("retry-after"), "17")
      assert.strictEqual(answer.headers.get("x-should-retry"), "true")
      first.behave(says(["fine"]))
      yield* post(gateway)
    })
  )

  it.effect("that does not begin in time is a 504, and its prompt is charged", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const gateway = yield* newGateway({ timeoutMs: 1_000 })
      const before = second.seen.length
      first.behave(neverAnswers)
      const answer = yield* post(gateway, { stream: true })
      assert.deepStrictEqual([answer.status, answer.code], [504, "upstream_timeout"])
      assert.strictEqual(answer.headers.get("x-should-retry"), "false")
      assert.strictEqual(second.seen.length, before)
      yield* Effect.promise(() => until("it is cut off", () => first.seen.at(-1)?.aborted))
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { status: 504, upstream: "first", estimated: true, outputTokens: 0 })
      assert.isAbove(calls[0]?.costUsd ?? 0, 0)
    })
  )

  it.effect("that reasons before it answers has begun, and is charged for it where it is cut off", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway({ timeoutMs: 1_000 })
      const reasons: Behaviour = async (_, response) => {
        streaming(response)
        await write(
          response,
          chunk({ role: "assistant", content: null, reasoning_content: "thirty bytes of its own reason" })
        )
      }
      first.behave(reasons)
      const answer = yield* post(gateway, { stream: true })
      assert.include(answer.text, '"reasoning_content":"thirty bytes of its own reason"')
      const { calls } = yield* settled(gateway, 1)
      assert.deepInclude(calls[0], { status: 504, estimated: true, outputTokens: 10 })
    })
  )

  it.effect("that fails in the middle ends the stream with an error, and what came is charged", () =>
    Effect.gen(function* () {
      const { first, second } = yield* Providers
      const others = second.seen.length
      for (const [what, behaviour] of [
        ["cuts", cuts],
        ["an event without end", endlessEvent],
        ["100 MB", hugeAnswer],
        ["ends too early", (_, response) => void streaming(response).end(chunk({ content: "once " }))]
      ] satisfies ReadonlyArray<readonly [string, Behaviour]>) {
        for (const stream of behaviour === hugeAnswer ? [true] : [true, false]) {
          const gateway = yield* newGateway()
          first.behave(says(["fine"]))
          yield* post(gateway)
          first.behave(behaviour)
          const answer = yield* post(gateway, { stream })
          assert.strictEqual(answer.code, "upstream_error", what)
          assert.notInclude(answer.text, "[DONE]", what)
          assert.strictEqual(answer.status, stream ? 200 : 502, what)
          const { calls } = yield* settled(gateway, 2)
          assert.deepInclude(calls[0], { status: 502, upstream: "first", estimated: true }, what)
          assert.isAbove(calls[0]?.outputTokens ?? 0, 0, what)
        }
      }
      assert.strictEqual(second.seen.length, others)
    })
  )

  it.effect("that counts wrongly, or not at all, is not believed; never more than was held is charged", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      for (const [usage, charged] of [
        ["", undefined],
        [usageOf(-5, 3), undefined],
        [usageOf("many", 3), undefined],
        [usageOf(1.5, 3), undefined],
        [usageOf(1e300, 3), undefined],
        [usageOf(2, 1_000_000), 1_000_000]
      ] as const) {
        const gateway = yield* newGateway({ monthlyBudgetUsd: 1 })
        first.behave(says(["twelve bytes"], usage))
        const answer = yield* post(gateway, { max_tokens: 100 })
        assert.strictEqual(answer.status, 200)
        const { calls, usage: month } = yield* settled(gateway, 1)
        assert.deepInclude(calls[0], { estimated: charged === undefined, outputTokens: charged ?? 4 }, usage)
        assert.isAtMost(month.spentUsd, 1)
        assert.isAbove(month.spentUsd, 0)
      }
    })
  )

  it.effect("is read no faster than the client reads", () =>
    Effect.gen(function* () {
      const { first } = yield* Providers
      const gateway = yield* newGateway()
      let sent = 0
      let stuck = false
      first.behave(async (_, response) => {
        streaming(response)
        const piece = chunk({ content: "x".repeat(16 * 1024) })
        let open = true
        while (open && sent < 30_000_000) {
          sent += piece.length
          stuck = true
          open = await write(response, piece)
          stuck = false
        }
      })
      yield* Effect.promise(async () => {
        const leave = new AbortController()
        const response = await fetch(`${gateway.baseURL}/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${gateway.apiKey}` },
          body: JSON.stringify({ ...body, stream: true }),
          signal: leave.signal
        })
        let last = -1
        // Longer than the limit on silence: it is not the upstream that keeps the call waiting.
        let same = 0
        await until("it stops", () => {
          same = stuck && sent === last ? same + 1 : 0
          last = sent
          return same > 60
        })
        assert.isBelow(sent, 20_000_000)
        const reader = response.body?.getReader()
        const next = await reader?.read()
        assert.isFalse(next?.done)
        await until("it goes on", async () => {
          await reader?.read()
          return sent > last
        })
        leave.abort()
      })
      yield* settled(gateway, 1)
    })
  )

  it.effect("is left when the gateway is deleted or the key revoked", () =>
    Effect.gen(function* () {
      const plane = yield* Plane
      const { first } = yield* Providers
      first.behave(endless())
      for (const [path, code] of [
        ["", "gateway_not_found"],
        ["key", "invalid_api_key"]
      ] as const) {
        const gateway = yield* newGateway()
        const before = first.seen.length
        const call = yield* Effect.forkChild(post(gateway, { stream: true }))
        yield* Effect.promise(() => until("the stream runs", () => first.seen.length > before))
        const gone = path === "" ? gateway.path : `${gateway.path}/keys/${gateway.keyId}`
        const deleted = yield* plane.call("DELETE", gone, { token: gateway.token })
        assert.strictEqual(deleted.status, 200)
        const { text } = yield* Fiber.join(call)
        assert.include(text, `"code":"${code}"`)
        yield* Effect.promise(() => until("the upstream is left", () => first.seen.at(-1)?.aborted))
        const after = yield* post(gateway)
        assert.strictEqual(after.status, 401)
      }
    })
  )

  it.effect("that fails again and again is left alone, and the gateway says so", () =>
    Effect.gen(function* () {
      const plane = yield* Plane
      const { anthropic } = yield* Providers
      const gateway = yield* newGateway({ maxRetries: 0 })
      anthropic.behave(refuses(500))
      const answers = yield* Effect.forEach([1, 2, 3, 4, 5, 6, 7], () =>
        post(gateway, { model: "svc/balanced" })
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [502, 502, 502, 502, 502, 503, 503]
      )
      assert.strictEqual(answers.at(-1)?.headers.get("retry-after"), "5")
      // What calls may have provoked is no other organization's business.
      const other = yield* newGateway({ maxRetries: 0 })
      assert.strictEqual((yield* post(other, { model: "svc/balanced" })).status, 502)
      const others = yield* Effect.forEach([1, 2, 3], () => newGateway({ maxRetries: 0 }))
      yield* Effect.forEach(others, (one) => post(one, { model: "svc/balanced" }))
      assert.strictEqual((yield* post(other, { model: "svc/balanced" })).status, 503)
      const metrics = yield* Effect.promise(async () => (await fetch(`${plane.metricsUrl}/metrics`)).text())
      assert.match(metrics, /svc_ai_upstream_failing\{[^}]*upstream="anthropic"[^}]*\} 1/)
      assert.match(metrics, /svc_ai_upstream_tries_total\{[^}]*outcome="upstream_error"[^}]*\} \d/)
      yield* plane.call("PATCH", gateway.path, {
        token: gateway.token,
        body: { allowedModels: ["svc/balanced"] }
      })
      const look = plane.call("GET", gateway.path, { token: gateway.token })
      yield* Effect.promise(() =>
        until("the gateway says so", async () => {
          const { body } = await Effect.runPromise(look)
          return JSON.stringify(body.conditions).includes("UpstreamFailing")
        })
      )
    })
  )
})
