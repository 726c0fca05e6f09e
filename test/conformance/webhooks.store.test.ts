import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import {
  DeliveryPage,
  DeliveryView,
  NewWebhook,
  RotatedSecret,
  WebhookList,
  WebhookView
} from "#src/webhooks/api.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

/** Nobody answers there: what is sent waits for its next try. */
const silent = "https://127.0.0.1:9/hook"

/** An organization, and calls about its webhooks. */
const setting = Effect.gen(function* () {
  const { call, tenant } = yield* Plane
  const mine = yield* tenant()
  const base = `/v1/orgs/${mine.slug}/webhooks`
  const ask = (method: string, path = "", body?: unknown, token = mine.adminKey) =>
    call(method, `${base}${path}`, { token, ...(body === undefined ? {} : { body }) })
  const create = (url: string, events: ReadonlyArray<string> = ["budget.alert"]) =>
    ask("POST", "", { url, events })
  return { mine, base, ask, create }
})

layer(testPlane(), { excludeTestServices: true })("webhooks", (it) => {
  it.effect("are made with a secret that is shown once, listed oldest first, and deleted", () =>
    Effect.gen(function* () {
      const { mine, ask } = yield* setting
      const { call, sql } = yield* Plane
      const events = ["budget.exceeded", "deploy.failed", "budget.exceeded"]
      const made = yield* ask("POST", "", { url: "https://hooks.example.com/a", events })
      assert.strictEqual(made.status, 201)
      yield* fits(NewWebhook, made.body)
      assert.match(made.body.secret, /^whsec_[0-9a-f]{40}$/)
      assert.deepStrictEqual(made.body.events, ["deploy.failed", "budget.exceeded"])
      const second = yield* ask("POST", "", { url: "https://hooks.example.com/b", events: ["budget.alert"] })

      const listed = yield* ask("GET")
      assert.strictEqual(listed.status, 200)
      yield* fits(WebhookList, listed.body)
      assert.deepStrictEqual(
        listed.body.map(({ id, enabled }: { id: string; enabled: boolean }) => [id, enabled]),
        [
          [made.body.id, true],
          [second.body.id, true]
        ]
      )
      assert.notInclude(listed.text, made.body.secret)
      const [stored] = yield* sql(
        `select w::text || encode(sealed, 'escape') as row from webhook w where id = '${made.body.id}'`
      )
      assert.notInclude(String(stored?.["row"]), made.body.secret.slice(6))

      const gone = yield* ask("DELETE", `/${made.body.id}`)
      assert.deepStrictEqual([gone.status, gone.body], [200, { ok: true }])
      assert.strictEqual((yield* ask("DELETE", `/${made.body.id}`)).status, 404)
      assert.lengthOf((yield* ask("GET")).body, 1)
      const audit = yield* call("GET", `/v1/orgs/${mine.slug}/audit?resource=${made.body.id}`, {
        token: mine.owner
      })
      assert.deepStrictEqual(
        audit.body.items
          // Refusals are written down a moment later.
          .filter(({ outcome }: { outcome: number }) => outcome < 400)
          .map(({ operation, outcome }: { operation: string; outcome: number }) => [operation, outcome]),
        [
          ["webhooks.delete", 200],
          ["webhooks.create", 201]
        ]
      )
    })
  )

  it.effect("take HTTPS addresses that requests may go to, and events that there are", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      for (const url of [
        "http://hooks.example.com/",
        "http://127.0.0.1/",
        "ftp://example.com/",
        "nonsense",
        "",
        "https://",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]/",
        "https://user:pass@example.com/",
        `https://example.com/${"x".repeat(2000)}`,
        1
      ]) {
        const refused = yield* ask("POST", "", { url, events: ["budget.alert"] })
        assert.deepStrictEqual([refused.status, refused.body.errors?.[0].pointer], [422, "/url"], String(url))
      }
      for (const events of [[], ["nonsense"], ["webhook.test"], "budget.alert", undefined]) {
        const refused = yield* ask("POST", "", { url: "https://example.com/", events })
        assert.strictEqual(refused.status, 422)
        assert.match(refused.body.errors[0].pointer, /^\/events/)
      }
      const unknown = yield* ask("POST", "", {
        url: "https://example.com/",
        events: ["budget.alert"],
        extra: 1
      })
      assert.deepStrictEqual([unknown.status, unknown.body.errors[0].pointer], [422, "/extra"])
      assert.strictEqual((yield* create("https://example.com/hook")).status, 201)
      // The same address in another spelling.
      const twice = yield* create("HTTPS://EXAMPLE.com:443/hook")
      assert.deepStrictEqual([twice.status, twice.body.code], [409, "url_taken"])
      assert.strictEqual((yield* create("https://example.com/other")).status, 201)
    })
  )

  it.effect("refuse callers nobody knows, and bodies that cannot be read", () =>
    Effect.gen(function* () {
      const { base, mine, create } = yield* setting
      const { call } = yield* Plane
      const made = yield* create(silent)
      const one = `${base}/${made.body.id}`
      const token = mine.adminKey
      const withBody = [
        ["POST", base],
        ["PATCH", one],
        ["POST", `${one}/secret/rotate`]
      ] as const
      for (const [method, path] of withBody) {
        const malformed = yield* call(method, path, { token, raw: "{" })
        assert.deepStrictEqual([malformed.status, malformed.body.code], [400, "malformed_body"], path)
        const headers = { "content-type": "text/plain" }
        assert.strictEqual((yield* call(method, path, { token, raw: "{}", headers })).status, 415, path)
        const large = yield* call(method, path, { token, raw: `{${" ".repeat(1024 * 1024)}}` })
        assert.strictEqual(large.status, 413, path)
      }
      const others = [
        ["GET", base],
        ["DELETE", one],
        ["POST", `${one}/test`],
        ["GET", `${one}/deliveries`],
        ["POST", `${one}/deliveries/${randomUUIDv7()}/redeliver`]
      ] as const
      for (const [method, path] of [...withBody, ...others]) {
        assert.strictEqual((yield* call(method, path, { token: null })).status, 401, `${method} ${path}`)
      }
    })
  )

  it.effect("are bounded in number", () =>
    Effect.gen(function* () {
      const { mine, create } = yield* setting
      const { sql } = yield* Plane
      assert.strictEqual((yield* create("https://example.com/0")).status, 201)
      yield* sql(`insert into webhook (org_id, id, url, events, key_id, sealed)
        select org_id, gen_random_uuid(), 'https://example.com/n' || n, events, key_id, sealed
        from webhook, generate_series(1, 49) n where org_id = '${mine.id}'`)
      const refused = yield* create("https://example.com/last")
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "too_many_webhooks"])
      yield* sql(`delete from webhook where org_id = '${mine.id}'`)
    })
  )

  it.effect("change their address and events, are switched off and on", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      const { body: made } = yield* create("https://example.com/a")
      const { body: other } = yield* create("https://example.com/b")
      const at = `/${made.id}`
      const changed = yield* ask("PATCH", at, {
        url: "https://example.com/c",
        events: ["budget.exceeded", "budget.alert"]
      })
      assert.strictEqual(changed.status, 200)
      yield* fits(WebhookView, changed.body)
      assert.deepStrictEqual(
        [changed.body.url, changed.body.events],
        ["https://example.com/c", ["budget.alert", "budget.exceeded"]]
      )
      const taken = yield* ask("PATCH", at, { url: "https://example.com/b" })
      assert.deepStrictEqual([taken.status, taken.body.code], [409, "url_taken"])
      const off = yield* ask("PATCH", at, { enabled: false })
      assert.deepStrictEqual([off.body.enabled, off.body.disabledReason], [false, "Switched off by hand"])
      const test = yield* ask("POST", `${at}/test`)
      assert.deepStrictEqual([test.status, test.body.code], [409, "webhook_disabled"])
      const on = yield* ask("PATCH", at, { enabled: true })
      assert.deepStrictEqual(
        [on.body.enabled, on.body.disabledAt, on.body.disabledReason],
        [true, null, null]
      )
      for (const body of [
        { url: "http://example.com/" },
        { events: [] },
        { enabled: "yes" },
        { secret: "x" }
      ]) {
        assert.strictEqual((yield* ask("PATCH", at, body)).status, 422, JSON.stringify(body))
      }
      assert.deepStrictEqual((yield* ask("PATCH", at, {})).body, on.body)
      assert.strictEqual((yield* ask("PATCH", `/${randomUUIDv7()}`, {})).status, 404)
      assert.strictEqual((yield* ask("GET")).body.length, 2)
      assert.notStrictEqual(other.id, made.id)
    })
  )

  it.effect("get another secret while the first one holds for a while", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      const { body: made } = yield* create("https://example.com/a")
      const rotated = yield* ask("POST", `/${made.id}/secret/rotate`, {})
      assert.strictEqual(rotated.status, 200)
      yield* fits(RotatedSecret, rotated.body)
      assert.match(rotated.body.secret, /^whsec_[0-9a-f]{40}$/)
      assert.notStrictEqual(rotated.body.secret, made.secret)
      assert.approximately(Date.parse(rotated.body.previousValidUntil), Date.now() + 86_400_000, 60_000)
      const atOnce = yield* ask("POST", `/${made.id}/secret/rotate`, { overlapSeconds: 0 })
      assert.isBelow(Date.parse(atOnce.body.previousValidUntil), Date.now() + 10_000)
      for (const overlapSeconds of [-1, 604_801, 1.5, "1"]) {
        const refused = yield* ask("POST", `/${made.id}/secret/rotate`, { overlapSeconds })
        assert.deepStrictEqual([refused.status, refused.body.errors[0].pointer], [422, "/overlapSeconds"])
      }
      assert.strictEqual((yield* ask("POST", `/${randomUUIDv7()}/secret/rotate`, {})).status, 404)
    })
  )

  it.effect("of a rotation that is repeated with its key the same secret is shown again", () =>
    Effect.gen(function* () {
      const { mine, base, create } = yield* setting
      const { call } = yield* Plane
      const { body: made } = yield* create("https://example.com/a")
      const rotate = call("POST", `${base}/${made.id}/secret/rotate`, {
        token: mine.adminKey,
        body: {},
        headers: { "idempotency-key": "once" }
      })
      const first = yield* rotate
      const again = yield* rotate
      assert.deepStrictEqual([again.status, again.body.secret], [200, first.body.secret])
    })
  )

  it.effect("show what was sent, page by page, and send it again", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      const { body: made } = yield* create(silent)
      const { body: other } = yield* create(`${silent}/other`)
      const at = `/${made.id}`
      const sent = yield* Effect.forEach([1, 2, 3], () => ask("POST", `${at}/test`))
      for (const { status, body } of sent) {
        assert.strictEqual(status, 202)
        yield* fits(DeliveryView, body)
        assert.strictEqual(body.event.type, "webhook.test")
      }
      const ids = sent.map(({ body }) => body.id).reverse()
      const first = yield* ask("GET", `${at}/deliveries?limit=2`)
      assert.strictEqual(first.status, 200)
      yield* fits(DeliveryPage, first.body)
      const rest = yield* ask("GET", `${at}/deliveries?limit=2&cursor=${first.body.nextCursor}`)
      assert.deepStrictEqual(
        [...first.body.items, ...rest.body.items].map(({ id }: { id: string }) => id),
        ids
      )
      assert.isNull(rest.body.nextCursor)
      assert.lengthOf((yield* ask("GET", `${at}/deliveries?state=delivered`)).body.items, 0)
      assert.lengthOf((yield* ask("GET", `${at}/deliveries?event=webhook.test`)).body.items, 3)
      assert.lengthOf((yield* ask("GET", `/${other.id}/deliveries`)).body.items, 0)
      for (const query of ["limit=0", "limit=101", "state=nonsense", "cursor=nonsense", "nonsense=1"]) {
        assert.strictEqual((yield* ask("GET", `${at}/deliveries?${query}`)).status, 422, query)
      }
      // A cursor of one list is none of another.
      const stolen = yield* ask("GET", `/${other.id}/deliveries?cursor=${first.body.nextCursor}`)
      assert.strictEqual(stolen.status, 422)

      const again = yield* ask("POST", `${at}/deliveries/${ids[0]}/redeliver`)
      assert.strictEqual(again.status, 202)
      yield* fits(DeliveryView, again.body)
      assert.notStrictEqual(again.body.id, ids[0])
      assert.strictEqual(again.body.event.id, sent[2]?.body.event.id)
      for (const path of [
        `${at}/deliveries/${randomUUIDv7()}/redeliver`,
        `${at}/deliveries/nope/redeliver`,
        `/${other.id}/deliveries/${ids[0]}/redeliver`,
        `/${randomUUIDv7()}/deliveries/${ids[0]}/redeliver`,
        `/${randomUUIDv7()}/test`
      ]) {
        assert.strictEqual((yield* ask("POST", path)).status, 404, path)
      }
      assert.strictEqual((yield* ask("GET", `/${randomUUIDv7()}/deliveries`)).status, 404)
      yield* ask("PATCH", at, { enabled: false })
      const stopped = yield* ask("POST", `${at}/deliveries/${ids[0]}/redeliver`)
      assert.deepStrictEqual([stopped.status, stopped.body.code], [409, "webhook_disabled"])
      const states = (yield* ask("GET", `${at}/deliveries`)).body.items.map(
        ({ state }: { state: string }) => state
      )
      assert.deepStrictEqual([...new Set(states)], ["failed"])
    })
  )

  it.effect("are there for admins of their organization alone", () =>
    Effect.gen(function* () {
      const { mine, ask, create } = yield* setting
      const { call, tenant } = yield* Plane
      const { body: made } = yield* create(silent)
      const { body: delivery } = yield* ask("POST", `/${made.id}/test`)
      const foreign = yield* tenant()
      const calls: ReadonlyArray<readonly [method: string, path: string, body?: unknown]> = [
        ["PATCH", `/${made.id}`, { enabled: false }],
        ["DELETE", `/${made.id}`],
        ["POST", `/${made.id}/secret/rotate`, {}],
        ["POST", `/${made.id}/test`],
        ["GET", `/${made.id}/deliveries`],
        ["POST", `/${made.id}/deliveries/${delivery.id}/redeliver`]
      ]
      for (const [method, path, body] of calls) {
        assert.strictEqual((yield* ask(method, path, body, mine.memberKey)).status, 403, `${method} ${path}`)
        assert.strictEqual((yield* ask(method, path, body, foreign.owner)).status, 404, `${method} ${path}`)
        const across = yield* call(method, `/v1/orgs/${foreign.slug}/webhooks${path}`, {
          token: foreign.adminKey,
          ...(body === undefined ? {} : { body })
        })
        assert.strictEqual(across.status, 404, `${method} ${path}`)
      }
      assert.lengthOf(
        (yield* call("GET", `/v1/orgs/${foreign.slug}/webhooks`, { token: foreign.owner })).body,
        0
      )
    })
  )
})
