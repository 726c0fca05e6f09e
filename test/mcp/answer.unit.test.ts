/** How answers of the API look to a model. */
import { assert, describe, it } from "@effect/vitest"
import { answered } from "#src/mcp/answer.ts"
import { makeCatalogue } from "#src/mcp/catalogue.ts"

const catalogue = makeCatalogue()

const shown = (operation: string, status: number, body: unknown, offset = 0, headers = {}) => {
  const entry = catalogue.get(operation)
  if (entry === undefined) throw new Error(`no ${operation}`)
  const text = body === undefined ? undefined : JSON.stringify(body)
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  return answered(catalogue, entry, { operation, offset }, { status, headers, text }).content as any
}

describe("answers for a model", () => {
  it("show long lists in parts, and every item once", () => {
    const items = Array.from({ length: 500 }, (_, at) => ({ id: at, name: "x".repeat(200) }))
    const seen: Array<number> = []
    let offset = 0
    for (;;) {
      const { body, next } = shown("caches.list", 200, items, offset)
      assert.isBelow(JSON.stringify(body).length, 25_000)
      seen.push(...body.map(({ id }: { id: number }) => id))
      const more = /offset (\d+)/.exec(next ?? "")?.[1]
      if (more === undefined) break
      offset = Number(more)
    }
    assert.deepStrictEqual(
      seen,
      items.map(({ id }) => id)
    )
  })

  it("show at least one item, whatever its length", () => {
    const { body, next } = shown("caches.list", 200, ["x".repeat(50_000), "y"])
    assert.strictEqual(body.length, 1)
    assert.include(next, "offset 1")
  })

  it("say how to go on: to the next page, to what is made, after what was refused", () => {
    assert.include(shown("resources.list", 200, { items: [], nextCursor: "c" }).next, "cursor")
    assert.isUndefined(shown("resources.list", 200, { items: [], nextCursor: null }).next)
    assert.include(
      shown("caches.create", 201, { id: "1", status: "provisioning" }).next,
      'caches.get with cacheId "1"'
    )
    assert.isUndefined(shown("caches.create", 201, { id: "1", status: "ready" }).next)
    assert.include(shown("executions.create", 202, { id: "2" }).next, 'executions.get with executionId "2"')
    const limited = shown("caches.list", 429, { code: "rate_limited", detail: "No" }, 0, {
      "retry-after": "7"
    })
    assert.deepStrictEqual(limited, {
      status: 429,
      error: { code: "rate_limited", detail: "No" },
      next: "Wait 7 seconds."
    })
    assert.include(
      shown("caches.create", 503, { code: "store_unavailable", detail: "No", requestId: "r" }).next,
      "idempotencyKey"
    )
  })

  it("mark secrets that are shown once, and show them once", () => {
    const made = shown("webhooks.create", 201, { id: "1", secret: "whsec_1" })
    assert.deepStrictEqual(made.shownOnce, ["secret"])
    assert.strictEqual(JSON.stringify(made).split("whsec_1").length, 2)
    assert.isUndefined(shown("caches.create", 201, { connectionString: null }).shownOnce)
  })

  it("neither wait for streams nor show what has no end", () => {
    assert.deepInclude(shown("executions.logs", 200, undefined), { status: 422 })
    assert.deepInclude(shown("manifest.get", 200, { text: "x".repeat(300_000) }), { status: 413 })
  })
})
