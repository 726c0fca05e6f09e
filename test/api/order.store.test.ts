import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const big = "x".repeat(2_000_000)

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("the order of checks", (it) => {
  it.effect("what the path names comes before size, size before validity, validity before billing", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const unpaid = yield* tenant("active")
      const token = unpaid.adminKey
      const projects = `/v1/orgs/${unpaid.slug}/projects`
      yield* call("POST", projects, { token, body: { name: "P", slug: "there" } })
      yield* sql(`update organization set billing_status = 'past_due' where id = '${unpaid.id}'`)
      const status = (path: string, body: unknown, method = "POST") =>
        Effect.map(call(method, path, { token, body }), (answer) => answer.status)
      const cache = { name: "one", sku: "cache-n1", region: "local" }

      assert.strictEqual(yield* status(`${projects}/nope/caches`, { name: big }), 404)
      assert.strictEqual(yield* status(`${projects}/there/caches?environment=nope`, { name: big }), 404)
      assert.strictEqual(yield* status(`${projects}/there/caches`, { name: big }), 413)
      assert.strictEqual(yield* status(`${projects}/there/caches`, { ...cache, sku: "huge" }), 422)
      assert.strictEqual(yield* status(`${projects}/there/caches?nonsense=1`, cache), 422)
      assert.strictEqual(yield* status(`${projects}/there/caches`, cache), 402)

      // Faults that only a closer look finds come before billing as well, and billing before conflicts.
      assert.strictEqual(yield* status(projects, { name: "P", slug: "admin" }), 422)
      assert.strictEqual(yield* status(projects, { name: "P\0", slug: "fine" }), 422)
      assert.strictEqual(yield* status(projects, { name: "P", slug: "there" }), 402)
      const variables = `${projects}/there/env`
      const many = (from: number) => ({
        vars: Array.from({ length: 600 }, (_, i) => ({ key: `K${from + i}`, value: "" }))
      })
      yield* sql(`update organization set billing_status = 'active' where id = '${unpaid.id}'`)
      assert.strictEqual(yield* status(variables, many(0), "PUT"), 200)
      yield* sql(`update organization set billing_status = 'past_due' where id = '${unpaid.id}'`)
      assert.strictEqual(yield* status(variables, many(1000), "PUT"), 422)
      assert.strictEqual(yield* status(variables, many(0), "PUT"), 402)
      const apply = `/v1/orgs/${unpaid.slug}/manifest/apply`
      assert.strictEqual(yield* status(apply, { manifest: { version: 2, organization: unpaid.slug } }), 422)
      assert.strictEqual(yield* status(apply, { manifest: { version: 1, organization: unpaid.slug } }), 402)
      // Reading stays free.
      assert.strictEqual((yield* call("GET", projects, { token })).status, 200)
    })
  )

  it.effect("what is named and is not there is told before billing, taken names and conditions", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const { id, slug, adminKey: token } = yield* tenant("active")
      const billing = (status: string) =>
        sql(`update organization set billing_status = '${status}' where id = '${id}'`)
      const projects = `/v1/orgs/${slug}/projects`
      yield* call("POST", projects, { token, body: { name: "P", slug: "there" } })
      const queues = `${projects}/there/queues`
      const lost = { deadLetterQueue: "nope" }
      const dead = yield* call("POST", queues, { token, body: { name: "dead" } })
      const one = `${queues}/${dead.body.id}`
      const refused = (method: string, path: string, body: object, headers: Record<string, string> = {}) =>
        Effect.map(call(method, path, { token, body, headers }), ({ status, body }) =>
          status === 422 ? body.errors.map(({ pointer }: { pointer: string }) => pointer) : body.code
        )
      const stale = { "if-match": '"1"' }

      assert.strictEqual(yield* refused("POST", queues, { name: "dead" }), "name_taken")
      assert.deepStrictEqual(yield* refused("POST", queues, { name: "dead", ...lost }), ["/deadLetterQueue"])
      assert.strictEqual(yield* refused("PATCH", one, { paused: true }, stale), "revision_mismatch")
      assert.deepStrictEqual(yield* refused("PATCH", one, lost, stale), ["/deadLetterQueue"])

      yield* billing("past_due")
      const named = { name: "other", deadLetterQueue: "dead" }
      assert.strictEqual(yield* refused("POST", queues, named), "billing_inactive")
      assert.deepStrictEqual(yield* refused("POST", queues, { ...named, ...lost }), ["/deadLetterQueue"])
      assert.strictEqual(yield* refused("PATCH", one, { paused: true }), "billing_inactive")
      assert.deepStrictEqual(yield* refused("PATCH", one, lost), ["/deadLetterQueue"])

      // What it named before is no fault of a change of something else.
      yield* billing("active")
      const naming = yield* call("POST", queues, { token, body: named })
      yield* sql(`update resource set name = 'renamed' where uid = '${dead.body.id}'`)
      yield* billing("past_due")
      const change = refused("PATCH", `${queues}/${naming.body.id}`, { paused: true })
      assert.strictEqual(yield* change, "billing_inactive")
    })
  )

  it.effect("a role that is too low is told before anything about the path or the body", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant("unpaid")
      const answer = yield* call("POST", `/v1/orgs/${mine.slug}/projects/nope/caches?nonsense=1`, {
        token: mine.memberKey,
        raw: "{"
      })
      assert.deepStrictEqual([answer.status, answer.body.code], [403, "forbidden"])
      assert.include(answer.body.detail, "admin")
    })
  )

  it.effect("text that the store cannot hold is a fault of the request, wherever it stands", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      for (const path of [
        "/v1/orgs/%00/projects",
        "/v1/orgs/%ff/projects",
        "/v1/orgs/%zz/projects",
        "/v1/orgs/main/projects/%00",
        "/v1/orgs/main/projects/a%00b/caches"
      ]) {
        const answer = yield* call("GET", path)
        assert.deepStrictEqual([answer.status, answer.body.code], [404, "not_found"], path)
      }
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Text", slug: "text" } })
      const faulty: ReadonlyArray<
        readonly [method: string, path: string, raw: string | undefined, at: string]
      > = [
        ["GET", "/v1/orgs/main/resources?kind=%00", undefined, "/query/kind"],
        ["GET", "/v1/orgs/main/resources?project=%00", undefined, "/query/project"],
        ["GET", "/v1/orgs/main/projects/text/env?environment=%00", undefined, "/query/environment"],
        ["GET", "/v1/orgs/main/projects?unknown=1", undefined, "/query/unknown"],
        ["POST", "/v1/orgs/main/projects", '{"name":"a\\u0000","slug":"nul"}', "/name"],
        ["POST", "/v1/orgs/main/projects", '{"name":"\\ud800","slug":"half"}', "/name"],
        [
          "PUT",
          "/v1/orgs/main/projects/text/env",
          '{"vars":[{"key":"A","value":"\\u0000"}]}',
          "/vars/0/value"
        ],
        [
          "PUT",
          "/v1/orgs/main/projects/text/env",
          '{"vars":[{"key":"A","value":"1"},{"key":"A","value":"2"}]}',
          "/vars/1/key"
        ],
        [
          "POST",
          "/v1/orgs/main/projects/text/environments",
          '{"slug":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}',
          "/slug"
        ],
        ["POST", "/v1/orgs/main/pauses", '{"scope":"kind","target":"Cache","reason":"\\u0000"}', "/reason"]
      ]
      for (const [method, path, raw, at] of faulty) {
        const answer = yield* call(method, path, raw === undefined ? {} : { raw })
        assert.strictEqual(answer.status, 422, `${method} ${path}: ${answer.text}`)
        assert.deepStrictEqual(
          answer.body.errors.map((error: { pointer: string }) => error.pointer),
          [at]
        )
      }
      const overflow = yield* call("GET", "/v1/orgs/main/resources/watch", {
        headers: { "last-event-id": "99999999999999999999-1" }
      })
      assert.strictEqual(overflow.status, 422)
    })
  )

  it.effect("every fault of a request is named at once, in one problem of the standard form", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const answer = yield* call("POST", "/v1/orgs/main/projects", {
        body: { name: "", slug: "Über", region: 1, git: { repo: "x", "a/b": 1 } },
        headers: { "x-request-id": "order-test-0001" }
      })
      assert.strictEqual(answer.headers.get("content-type"), "application/problem+json")
      assert.sameMembers(
        answer.body.errors.map((error: { pointer: string }) => error.pointer),
        ["/name", "/slug", "/region", "/git/repo", "/git/a~1b"]
      )
      const { errors: _errors, detail, ...rest } = answer.body
      assert.isString(detail)
      assert.deepStrictEqual(rest, {
        type: "urn:svc:problem:invalid",
        title: "The request is not valid",
        status: 422,
        code: "invalid",
        requestId: "order-test-0001"
      })
      const odd = yield* call("GET", "/v1/nothing", { headers: { "x-request-id": "<script>" } })
      assert.notInclude(odd.text, "<script>")
      assert.strictEqual(odd.body.requestId, odd.headers.get("x-request-id"))
    })
  )
})
