import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { digestOf } from "#src/access/Access.ts"
import { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { Clients } from "#src/agents/Clients.ts"
import { Db } from "#src/store/Db.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { issuer, makePerson, queryOf, world } from "./world.ts"

const scopes = ["caches.create", "projects.list"]

layer(world(), { excludeTestServices: true })("authorization requests", (it) => {
  it.effect("wait for a decision, and approving answers a code, the state and the issuer, once", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const { engine: sql } = yield* Db
      const { orgId, userId, sessionId, email } = yield* makePerson("owner")
      const { id } = yield* requests.begin(queryOf())
      const pending = Option.getOrThrow(yield* requests.get(id))
      assert.deepInclude(pending, {
        client: { id: "svc-cli", name: "svc command line", firstParty: true },
        redirectUri: "http://127.0.0.1:4711/callback",
        audience: "api",
        role: "admin",
        scopes
      })
      const decision = { orgId, userId, sessionId, role: "admin", scopes } as const
      const answers = yield* Effect.all(
        Array.from({ length: 4 }, () => Effect.result(requests.approve(id, decision))),
        { concurrency: "unbounded" }
      )
      const [url, ...others] = answers.flatMap((answer) =>
        answer._tag === "Success" ? [answer.success] : []
      )
      assert.deepStrictEqual(others, [])
      const back = new URL(url ?? "")
      assert.strictEqual(back.origin + back.pathname, "http://127.0.0.1:4711/callback")
      assert.strictEqual(back.searchParams.get("state"), "a state of theirs")
      assert.strictEqual(back.searchParams.get("iss"), issuer)
      const code = back.searchParams.get("code") ?? ""
      assert.match(code, /^svcc_[0-9a-f]{96}$/)
      assert.isTrue(Option.isNone(yield* requests.get(id)))
      assert.strictEqual((yield* Effect.flip(requests.approve(id, decision)))._tag, "RequestGone")
      assert.strictEqual((yield* Effect.flip(requests.deny(id)))._tag, "RequestGone")
      const codes = yield* sql`select user_id, role, scopes, audience from authorization_code
        where org_id = ${orgId} and digest = ${digestOf(code)}`
      assert.deepStrictEqual(codes, [{ user_id: userId, role: "admin", scopes, audience: "api" }])
      const mails = yield* sql`select template from mail_outbox where recipient = ${email}`
      assert.deepStrictEqual(mails, [{ template: "agent_let_in" }])
      const audited = yield* sql`select principal, operation from audit_log where org_id = ${orgId}`
      assert.deepStrictEqual(audited, [{ principal: `user:${userId}`, operation: "agentGrants.approve" }])
    })
  )

  it.effect("are denied with access_denied, the state and the issuer", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const { id } = yield* requests.begin(queryOf({ state: undefined }))
      const back = new URL(yield* requests.deny(id))
      assert.deepStrictEqual(Object.fromEntries(back.searchParams), { error: "access_denied", iss: issuer })
      assert.strictEqual((yield* Effect.flip(requests.deny(id)))._tag, "RequestGone")
    })
  )

  it.effect("nobody approves more than was asked for, above their role, elsewhere or without a session", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const { orgId, userId, sessionId } = yield* makePerson("member", org)
      const admin = yield* makePerson("admin", org)
      const other = yield* makeOrganization()
      const { id } = yield* requests.begin(queryOf())
      const lower = yield* requests.begin(queryOf({ scope: "projects.list" }))
      const decision = { orgId, userId, sessionId, role: "member", scopes: ["projects.list"] } as const
      const refused = (id: string, changed: object) =>
        Effect.map(Effect.flip(requests.approve(id, { ...decision, ...changed })), ({ _tag }) =>
          assert.strictEqual(_tag, "NotPermitted", JSON.stringify(changed))
        )
      yield* refused(id, { role: "admin" })
      yield* refused(id, { scopes: ["caches.create"] })
      yield* refused(id, { scopes: [] })
      yield* refused(id, { scopes: ["projects.list", "projects.list"] })
      yield* refused(id, { scopes: ["projects.list", "caches.list"] })
      yield* refused(id, { orgId: other.id })
      yield* refused(id, { orgId: "' or true" })
      yield* refused(id, { sessionId: admin.sessionId })
      yield* refused(lower.id, { userId: admin.userId, sessionId: admin.sessionId, role: "admin" })
      yield* sql`update organization set deletion_requested_at = now() where id = ${org.id}`
      yield* refused(id, {})
      yield* sql`update organization set deletion_requested_at = null where id = ${org.id}`
      yield* requests.approve(id, decision)
    })
  )

  it.effect(
    "a client that a person knows already is told of by mail again: anybody can say that it is that one",
    () =>
      Effect.gen(function* () {
        const requests = yield* AuthorizationRequests
        const { engine: sql } = yield* Db
        const { orgId, userId, sessionId, email } = yield* makePerson("owner")
        yield* sql`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
        values (${orgId}, ${userId}, ${userId}, 'svc-cli', 'svc', 'api', 'member', '{}')`
        const { id } = yield* requests.begin(queryOf())
        yield* requests.approve(id, { orgId, userId, sessionId, role: "admin", scopes })
        assert.strictEqual((yield* sql`select from mail_outbox where recipient = ${email}`).length, 1)
      })
  )

  it.effect("the answer keeps a registered query as it is written, and says each thing once", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const clients = yield* Clients
      for (const [redirect_uri, back] of [
        [
          "https://agent.example/cb?a%20b=c%20d&e",
          "https://agent.example/cb?a%20b=c%20d&e&error=access_denied&iss="
        ],
        ["https://agent.example/cb?", "https://agent.example/cb?error=access_denied&iss="],
        ["https://agent.example", "https://agent.example/?error=access_denied&iss="],
        ["https://agent.example/cb?error=none&x=?", "https://agent.example/cb?x=?&error=access_denied&iss="],
        ["cursor://x.y/cb?z", "cursor://x.y/cb?z&error=access_denied&iss="]
      ] as const) {
        const client_id = clients.register("x", [redirect_uri])?.id
        const { id } = yield* requests.begin(
          queryOf({ client_id, redirect_uri, state: undefined, scope: "projects.list" })
        )
        assert.strictEqual(yield* requests.deny(id), `${back}${encodeURIComponent(issuer)}`)
      }
    })
  )

  it.effect("too old, unknown and nonsense ones are gone", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const { engine: sql } = yield* Db
      const { orgId, userId, sessionId } = yield* makePerson("owner")
      const { id } = yield* requests.begin(queryOf())
      yield* sql`update authorization_request set expires_at = now() where id = ${id}`
      for (const one of [id, orgId, "", "x", `${id}'`]) {
        assert.isTrue(Option.isNone(yield* requests.get(one)))
        const decision = { orgId, userId, sessionId, role: "admin", scopes } as const
        assert.strictEqual((yield* Effect.flip(requests.approve(one, decision)))._tag, "RequestGone")
        assert.strictEqual((yield* Effect.flip(requests.deny(one)))._tag, "RequestGone")
      }
    })
  )

  it.effect("what is wrong with client or address is told on a page, all else to the client", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const clients = yield* Clients
      const fault = (
        params: Readonly<Record<string, string | undefined>>,
        add: Readonly<Record<string, string>> = {}
      ) => {
        const query = queryOf(params)
        for (const [name, value] of Object.entries(add)) query.append(name, value)
        return Effect.map(Effect.flip(requests.begin(query)), (refused) => {
          assert.strictEqual(refused._tag, "AuthorizationRefused", `${query}`)
          if (refused._tag !== "AuthorizationRefused") return []
          const back = refused.redirect === null ? null : new URL(refused.redirect).searchParams
          if (back !== null) {
            assert.strictEqual(back.get("error"), refused.error)
            assert.strictEqual(back.get("iss"), issuer)
          }
          return [refused.error, back === null ? "page" : "client"]
        })
      }
      const registered = clients.register("An editor", ["https://agent.example/cb", "cursor://x.y/cb"])
      const client_id = registered?.id ?? ""
      const forged = client_id.replace(/^svcd\.[^.]+/, (text) => `${text.slice(0, -2)}AA`)
      for (const params of [
        { client_id: undefined },
        { client_id: "svc-other" },
        { client_id: forged },
        { client_id: `svcd.${"A".repeat(3_000)}.${"A".repeat(43)}` }
      ]) {
        assert.deepStrictEqual(yield* fault(params), ["invalid_client", "page"])
      }
      assert.deepStrictEqual(yield* fault({}, { client_id: "svc-mcp" }), ["invalid_client", "page"])
      for (const redirect_uri of [
        undefined,
        "http://127.0.0.1:4711/other",
        "http://127.0.0.1:4711/callback/",
        "http://127.0.0.1:4711/callback?x=1",
        "http://127.0.0.1:4711/callback#x",
        "http://127.0.0.1:99999/callback",
        "http://127.0.0.1.evil.example/callback",
        "http://127.0.0.1@evil.example/callback",
        "http://user@127.0.0.1:4711/callback",
        "http://localhost:4711/callback",
        "https://127.0.0.1:4711/callback",
        "HTTP://127.0.0.1:4711/callback",
        "http://127.1:4711/callback",
        "http://127.0.0.1:4711/\tcallback",
        "http://127.0.0.1:4711/callback\0",
        "http://127.0.0.1:4711/x/../callback",
        "http://127.0.0.1:4711\\callback",
        "javascript:alert(1)//127.0.0.1/callback"
      ]) {
        assert.deepStrictEqual(yield* fault({ redirect_uri }), ["invalid_request", "page"], redirect_uri)
      }
      for (const redirect_uri of [
        "https://agent.example/CB",
        "https://agent.example/cb/",
        "https://agent.example:444/cb",
        "https://agent.example.evil/cb",
        "https://AGENT.example/cb",
        "http://agent.example/cb",
        "CURSOR://x.y/cb",
        "cursor://x.z/cb"
      ]) {
        assert.deepStrictEqual(
          yield* fault({ client_id, redirect_uri }),
          ["invalid_request", "page"],
          redirect_uri
        )
      }
      assert.deepStrictEqual(yield* fault({}, { redirect_uri: "http://127.0.0.1:1/callback" }), [
        "invalid_request",
        "page"
      ])
      const told: ReadonlyArray<readonly [string, Readonly<Record<string, string | undefined>>]> = [
        ["unsupported_response_type", { response_type: "token" }],
        ["unsupported_response_type", { response_type: undefined }],
        ["invalid_request", { response_mode: "fragment" }],
        ["request_not_supported", { request_uri: "https://evil.example" }],
        ["invalid_request", { code_challenge: undefined }],
        ["invalid_request", { code_challenge: "short" }],
        ["invalid_request", { code_challenge_method: "plain" }],
        ["invalid_request", { code_challenge_method: undefined }],
        ["invalid_request", { state: "x".repeat(1_001) }],
        ["invalid_request", { state: "\0" }],
        ["invalid_target", { resource: "https://evil.example" }],
        ["invalid_target", { resource: `${issuer}/mcp` }],
        ["invalid_scope", { scope: "nothing.known" }],
        ["invalid_scope", { scope: "*" }],
        ["invalid_scope", { scope: "projects.list projects.*" }],
        ["invalid_scope", { scope: "projects.delete" }],
        ["invalid_scope", { scope: "apikeys.create" }],
        ["invalid_scope", { scope: "offline_access" }],
        ["invalid_scope", { role: "owner" }],
        ["invalid_scope", { role: "member" }]
      ]
      for (const [error, params] of told) {
        assert.deepStrictEqual(yield* fault(params), [error, "client"], JSON.stringify(params))
      }
      for (const name of ["state", "scope", "code_challenge", "response_type", "anything"]) {
        const answer = yield* fault({ anything: "1" }, { [name]: "2" })
        assert.deepStrictEqual(answer, ["invalid_request", "client"], name)
      }
    })
  )

  it.effect("a client that names no scope gets what only reads, and one that is registered is for MCP", () =>
    Effect.gen(function* () {
      const requests = yield* AuthorizationRequests
      const clients = yield* Clients
      const client = clients.register("An\u202e editor\n", ["http://localhost/cb"])
      assert.strictEqual(client?.name, "An editor")
      const { id } = yield* requests.begin(
        queryOf({
          client_id: client?.id,
          redirect_uri: "http://localhost:5555/cb",
          scope: undefined,
          resource: `${issuer.replace("127.0.0.1", "localhost")}/mcp`
        })
      )
      const pending = Option.getOrThrow(yield* requests.get(id))
      assert.deepInclude(pending, { audience: "mcp", role: "member" })
      assert.include(pending.scopes, "projects.list")
      assert.notInclude(pending.scopes, "caches.create")
      assert.isFalse(pending.client.firstParty)
    })
  )

  it.effect("registrations are taken for addresses that answers may go to, and keep no row", () =>
    Effect.gen(function* () {
      const clients = yield* Clients
      const good = ["https://claude.ai/api/mcp/auth_callback", "vscode://publisher.x/cb", "http://[::1]/cb"]
      const made = clients.register("x", good)
      assert.deepStrictEqual(clients.register("x", good), made)
      assert.deepStrictEqual(yield* clients.find(made?.id ?? ""), made)
      for (const uri of [
        "http://agent.example/cb",
        "https://user:pw@agent.example/cb",
        "https://agent.example/cb#x",
        "https://agent.example/a/../cb",
        "HTTPS://agent.example/cb",
        "https://AGENT.example/cb",
        "https:agent.example/cb",
        "https://agent.example/\u0000",
        "https://agent.example/ cb",
        "https://agent.example\\cb",
        "http://127.0.0.1.evil.example/cb",
        "http://2130706433/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "cursor:cb",
        "other://x/cb",
        "",
        "https://"
      ]) {
        assert.isUndefined(clients.register("x", [uri]), uri)
      }
      assert.isUndefined(clients.register("x", []))
      assert.isUndefined(
        clients.register(
          "x",
          Array.from({ length: 6 }, () => good[0] ?? "")
        )
      )
      assert.isUndefined(clients.register("x", [`https://agent.example/${"x".repeat(1_000)}`]))
    })
  )
})
