/** What hostile clients, models and pages try at the endpoint. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { initialize, makeGrant, post, toolCall } from "./clients.ts"

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const list = { jsonrpc: "2.0", id: 1, method: "tools/list" }

/** The answer of the tool in a response. */
// biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
const toolText = ({ answer }: { readonly answer: any }) => JSON.parse(answer.result.content[0].text)

layer(testPlane(), { excludeTestServices: true })("MCP under attack", (it) => {
  it.effect(
    "execute needs a credential, wherever it stands: alone, in a batch, under keys that stand twice",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const execute = toolCall("execute", { operation: "projects.list" }, 7)
        const alone = yield* post(url, execute)
        assert.deepStrictEqual([alone.status, alone.answer.id], [401, 7])
        const challenge = alone.headers.get("www-authenticate") ?? ""
        assert.include(challenge, `resource_metadata="${url}/.well-known/oauth-protected-resource/mcp"`)
        assert.match(challenge, /^Bearer scope="[^"]*\bprojects\.list\b[^"]*"/)
        assert.notInclude(challenge, "error=")
        assert.strictEqual((yield* post(url, [list, execute])).status, 401)
        const twice = JSON.stringify(execute).replace('"name":"execute"', '"name":"search","name":"execute"')
        const hidden = yield* post(url, twice)
        assert.deepStrictEqual([hidden.status, hidden.answer.error.data.code], [400, "invalid"])
        const escaped = JSON.stringify(execute).replace('"name":"execute"', '"name":"ex\\u0065cute"')
        assert.strictEqual((yield* post(url, escaped)).status, 401)
      })
  )

  it.effect("a credential that does not hold is told so, whatever is asked", () =>
    Effect.gen(function* () {
      const { url, session, tenant, sql } = yield* Plane
      const one = yield* tenant()
      const api = yield* makeGrant(one, { scopes: ["projects.list"], audience: "api" })
      const revoked = yield* makeGrant(one, { scopes: ["projects.list"] })
      yield* sql(`update agent_grant set revoked_at = now() where id = '${revoked.id}'`)
      for (const authorization of [
        `Bearer svc_${"0".repeat(40)}`,
        `Bearer ${session}`,
        `Bearer ${api.token}`,
        `Bearer ${revoked.token}`,
        "Bearer",
        "Basic dGVzdDp0ZXN0"
      ]) {
        const { status, headers } = yield* post(url, list, { authorization })
        assert.deepStrictEqual(
          [authorization, status, headers.get("www-authenticate")?.includes('error="invalid_token"')],
          [authorization, 401, true]
        )
      }
      // A cookie is no credential here.
      const cookie = yield* post(url, toolCall("execute", { operation: "projects.list" }), {
        cookie: `svc_session=${session}`
      })
      assert.strictEqual(cookie.status, 401)
    })
  )

  it.effect("a token for MCP is none for the API", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const one = yield* tenant()
      const { token } = yield* makeGrant(one, { scopes: ["projects.list"] })
      assert.strictEqual((yield* call("GET", `/v1/orgs/${one.slug}/projects`, { token })).status, 401)
    })
  )

  it.effect(
    "a grant runs its operations and no others; the challenge names what it has and what it lacks",
    () =>
      Effect.gen(function* () {
        const { url, tenant, sql } = yield* Plane
        const one = yield* tenant()
        const { token, id } = yield* makeGrant(one, { scopes: ["projects.list", "projects.get"] })
        const allowed = yield* post(url, toolCall("execute", { operation: "projects.list" }), bearer(token))
        assert.strictEqual(toolText(allowed).status, 200)
        const refused = yield* post(
          url,
          [
            toolCall("execute", { operation: "projects.list" }),
            toolCall("execute", { operation: "projects.create" }, 2)
          ],
          bearer(token)
        )
        assert.strictEqual(refused.status, 403)
        assert.include(
          refused.headers.get("www-authenticate"),
          'error="insufficient_scope", error_description="projects.create was not granted", scope="projects.list projects.get projects.create"'
        )
        yield* eventually(
          "the refusal is audited",
          sql(
            `select 1 from audit_log where principal = 'grant:${id}' and operation = 'projects.create' and outcome = 403`
          ),
          (rows) => rows.length === 1
        )
        // What only people do is no scope to ask for: the API refuses it.
        const session = yield* post(url, toolCall("execute", { operation: "apikeys.create" }), bearer(token))
        assert.deepStrictEqual([session.status, toolText(session).status], [200, 403])
        const listing = yield* post(url, list, bearer(token))
        const [, execute] = listing.answer.result.tools
        assert.deepStrictEqual(
          [execute.annotations.readOnlyHint, execute.annotations.destructiveHint],
          [true, false]
        )
      })
  )

  it.effect("a path stays where it is, in the caller's organization", () =>
    Effect.gen(function* () {
      const { url, tenant } = yield* Plane
      const [one, other] = [yield* tenant(), yield* tenant()]
      const run = (args: Record<string, unknown>) =>
        Effect.map(post(url, toolCall("execute", args), bearer(one.adminKey)), toolText)
      for (const orgId of [other.slug, other.id, "../x"]) {
        const answer = yield* run({ operation: "projects.list", path: { orgId } })
        assert.deepStrictEqual([orgId, answer.status], [orgId, 404])
      }
      for (const orgId of [one.slug, one.id])
        assert.strictEqual((yield* run({ operation: "projects.list", path: { orgId } })).status, 200)
      for (const projectId of ["..", ".", "", "\ud800"]) {
        const answer = yield* run({ operation: "caches.list", path: { projectId } })
        assert.deepStrictEqual([projectId, answer.status], [projectId, 422])
      }
      const elsewhere = [
        `../../${other.slug}`,
        "%2e%2e",
        "..%2f",
        "x/../../y",
        "a?b=c",
        "a#b",
        "a;b",
        "..\\",
        "\u0000"
      ]
      for (const projectId of elsewhere) {
        const answer = yield* run({ operation: "projects.get", path: { projectId } })
        assert.deepStrictEqual([projectId, answer.status, answer.error.code], [projectId, 404, "not_found"])
      }
      const named = yield* run({ operation: "caches.list", path: { projectId: "x", cacheId: "y" } })
      assert.deepStrictEqual(
        [named.status, named.error.detail],
        [422, "The path of caches.list has projectId, not cacheId"]
      )
      const query = yield* run({ operation: "projects.list", query: { "a&orgId": other.slug } })
      assert.strictEqual(query.status, 422)
      assert.strictEqual((yield* run({ operation: "projects.get", path: {} })).status, 422)
      for (const operation of ["auth.signIn", "resources.watch", "constructor", "__proto__", ""])
        assert.deepStrictEqual([operation, (yield* run({ operation })).status], [operation, 404])
    })
  )

  it.effect("a body that a model wrote down as text is read as the API reads it", () =>
    Effect.gen(function* () {
      const { url, tenant } = yield* Plane
      const { adminKey } = yield* tenant()
      const run = (args: Record<string, unknown>) =>
        Effect.map(post(url, toolCall("execute", args), bearer(adminKey)), toolText)
      const made = yield* run({ operation: "projects.create", body: '{"name": "A", "slug": "aa"}' })
      assert.strictEqual(made.status, 201)
      assert.strictEqual((yield* run({ operation: "projects.create", body: "no JSON" })).status, 400)
      const excess = yield* run({ operation: "projects.create", bodi: {} })
      assert.strictEqual(excess.status, 422)
      assert.include(excess.error.detail, "bodi")
    })
  )

  it.effect("other sites' pages, other methods, and requests without bounds are refused", () =>
    Effect.gen(function* () {
      const { url, apiKey, call } = yield* Plane
      for (const headers of [
        { origin: "https://evil.example" },
        { origin: "null" },
        { "sec-fetch-site": "cross-site" },
        { origin: "http://127.0.0.1:1" }
      ]) {
        const { status, answer } = yield* post(url, initialize, headers)
        assert.deepStrictEqual([headers, status, answer.error.data.code], [headers, 403, "cross_origin"])
      }
      for (const method of ["GET", "DELETE", "PUT"]) {
        const { status, headers } = yield* call(method, "/mcp")
        assert.deepStrictEqual([method, status, headers.get("allow")], [method, 405, "OPTIONS, POST"])
      }
      const padded = (bytes: number) => ({ ...list, params: { _meta: { padding: "x".repeat(bytes) } } })
      assert.strictEqual((yield* post(url, padded(70_000))).status, 413)
      assert.strictEqual((yield* post(url, padded(70_000), bearer(apiKey))).status, 200)
      assert.strictEqual((yield* post(url, padded(6_000_000), bearer(apiKey))).status, 413)
      const body = { name: "x".repeat(2_000_000) }
      const long = yield* post(
        url,
        toolCall("execute", { operation: "projects.create", body }),
        bearer(apiKey)
      )
      assert.strictEqual(toolText(long).status, 413)
      assert.strictEqual(
        (yield* post(
          url,
          Array.from({ length: 21 }, () => list)
        )).status,
        413
      )
      assert.strictEqual((yield* post(url, "[".repeat(1_000))).status, 400)
      assert.strictEqual((yield* post(url, "{")).answer.error.code, -32700)
      assert.strictEqual((yield* post(url, list, { "content-type": "text/plain" })).status, 415)
      assert.strictEqual((yield* post(url, list, { "content-encoding": "gzip" })).status, 415)
      for (const nothing of [
        "[]",
        "{}",
        "null",
        "1",
        '"x"',
        '{"jsonrpc":"2.0","id":{}}',
        '{"method":"tools/call","params":[]}'
      ])
        assert.include([400, 404], (yield* post(url, nothing)).status, nothing)
    })
  )
})

layer(testPlane({ rateLimit: 30 }), { excludeTestServices: true })("MCP in a flood", (it) => {
  it.effect("strangers and credentials have limits", () =>
    Effect.gen(function* () {
      const { url, apiKey, tenant } = yield* Plane
      for (const headers of [{}, bearer(apiKey)]) {
        const answers = yield* Effect.forEach(Array.from({ length: 60 }), () => post(url, list, headers), {
          concurrency: 10
        })
        const refused = answers.filter(({ status }) => status === 429)
        assert.isAtLeast(refused.length, 20)
        assert.match(refused[0]?.headers.get("retry-after") ?? "", /^\d+$/)
      }
      // A batch is as many requests as it runs operations.
      const { adminKey } = yield* tenant()
      const batch = Array.from({ length: 20 }, (_, id) =>
        toolCall("execute", { operation: "projects.list" }, id)
      )
      const texts = yield* Effect.forEach(Array.from({ length: 3 }), () => post(url, batch, bearer(adminKey)))
      assert.include(texts.map(({ text }) => text).join(""), "rate_limited")
    })
  )
})
