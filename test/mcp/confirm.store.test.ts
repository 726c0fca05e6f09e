/** What cannot be taken back is done after the person was asked: by the client, or by the model's word. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connect, lines } from "./clients.ts"

const shop = Effect.gen(function* () {
  const { call, tenant } = yield* Plane
  const { adminKey: token, memberKey, slug } = yield* tenant()
  const variables = `/v1/orgs/${slug}/projects/shop/env`
  yield* call("POST", `/v1/orgs/${slug}/projects`, { token, body: { name: "Shop", slug: "shop" } })
  yield* call("PUT", variables, {
    token,
    body: {
      vars: [
        { key: "A", value: "1" },
        { key: "B", value: "2" }
      ]
    }
  })
  const left = Effect.map(call("GET", variables, { token }), ({ body }) =>
    body.map((one: { key: string }) => one.key)
  )
  const order = (key: string) => ({ operation: "env.delete", path: { projectId: "shop", key } })
  return { token, memberKey, left, order }
})

layer(testPlane(), { excludeTestServices: true })("confirming", (it) => {
  for (const line of lines) {
    it.effect(`a client of ${line} that cannot ask has the model repeat what it confirms`, () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const { token, left, order } = yield* shop
        const { call } = yield* connect(line, url, { token })
        for (const confirm of [undefined, "yes", "env.set"]) {
          const asked = yield* call("execute", {
            ...order("A"),
            ...(confirm === undefined ? {} : { confirm })
          })
          assert.deepStrictEqual([asked.isError, asked.content.error.code], [true, "confirmation_required"])
          assert.include(asked.content.error.detail, "key A")
        }
        assert.deepStrictEqual(yield* left, ["A", "B"])
        assert.isFalse((yield* call("execute", { ...order("A"), confirm: "env.delete" })).isError)
        assert.deepStrictEqual(yield* left, ["B"])
      })
    )
  }

  it.effect("a client that can ask is made to: a no is a no, and a word of the model does not help", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { token, left, order } = yield* shop
      const asked: Array<string> = []
      const answers = [
        { action: "decline" as const },
        { action: "accept" as const, content: { confirm: false } },
        { action: "accept" as const, content: { confirm: true } }
      ]
      const ask = (message: string) => {
        asked.push(message)
        return answers[asked.length - 1] ?? { action: "decline" as const }
      }
      const { call } = yield* connect("v2", url, { token, ask })
      for (const _ of [1, 2]) {
        const refused = yield* call("execute", { ...order("A"), confirm: "env.delete" })
        assert.deepStrictEqual([refused.isError, refused.content.error.code], [true, "declined"])
      }
      assert.deepStrictEqual(yield* left, ["A", "B"])
      assert.isFalse((yield* call("execute", order("A"))).isError)
      assert.deepStrictEqual(yield* left, ["B"])
      assert.strictEqual(asked.length, 3)
      assert.include(asked[0], "env.delete, projectId shop, key A")
    })
  )

  it.effect("a yes to one order is no yes to another", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { token, left, order } = yield* shop
      let target = "A"
      const swapping: typeof fetch = (input, init) => {
        const body = String(init?.body ?? "")
        // The answer to the question about A, sent with an order about B.
        const sent = body.includes("inputResponses") ? body.replace('"key":"A"', `"key":"${target}"`) : body
        return fetch(input, init?.body === undefined ? init : { ...init, body: sent })
      }
      target = "B"
      let questions = 0
      const ask = () => {
        questions += 1
        return questions === 1
          ? { action: "accept" as const, content: { confirm: true } }
          : { action: "decline" as const }
      }
      const { call } = yield* connect("v2", url, { token, ask, fetch: swapping })
      assert.isTrue((yield* call("execute", order("A"))).isError)
      assert.isAtLeast(questions, 2)
      assert.deepStrictEqual(yield* left, ["A", "B"])
    })
  )

  it.effect("nobody is asked about what is refused anyway", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { memberKey, order } = yield* shop
      const ask = () => {
        throw new Error("asked")
      }
      const { call } = yield* connect("v2", url, { token: memberKey, ask })
      const refused = yield* call("execute", order("A"))
      assert.deepStrictEqual([refused.isError, refused.content.status], [true, 403])
    })
  )
})
