import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as oauth from "oauth4webapi"
import { digestOf } from "#src/access/Access.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { letIn, post, redeem, refresh, requestsOf, tokensFor } from "./plane.ts"

const plain = { [oauth.allowInsecureRequests]: true } as const
const scope = "me.get projects.create projects.list"
const variables = { SVC_AGENT_RATE_LIMIT: "100000" }

layer(testPlane({}, variables), { excludeTestServices: true })("the authorization server", (it) => {
  it.effect("takes a client of the standards through the whole flow", () =>
    Effect.gen(function* () {
      const { url, tenant, sql, call } = yield* Plane
      const requests = yield* requestsOf
      const mine = yield* tenant()
      const resource = new URL(`${url}/mcp`)
      const server = yield* Effect.promise(async () => {
        const told = await oauth.resourceDiscoveryRequest(resource, plain)
        const { authorization_servers } = await oauth.processResourceDiscoveryResponse(resource, told)
        const issuer = new URL(authorization_servers?.[0] ?? "")
        const found = await oauth.discoveryRequest(issuer, { ...plain, algorithm: "oauth2" })
        return oauth.processDiscoveryResponse(issuer, found)
      })
      const redirect = "http://127.0.0.1:9/cb"
      const client = yield* Effect.promise(async () =>
        oauth.processDynamicClientRegistrationResponse(
          await oauth.dynamicClientRegistrationRequest(
            server,
            {
              client_name: "An editor",
              redirect_uris: ["http://127.0.0.1/cb"],
              token_endpoint_auth_method: "none"
            },
            plain
          )
        )
      )
      const verifier = oauth.generateRandomCodeVerifier()
      const challenge = yield* Effect.promise(() => oauth.calculatePKCECodeChallenge(verifier))
      const state = oauth.generateRandomState()
      const { back } = yield* letIn(requests, {
        tenant: mine,
        scope,
        params: {
          client_id: client.client_id,
          redirect_uri: redirect,
          state,
          code_challenge: challenge,
          resource: resource.href
        }
      })
      const tokens = yield* Effect.promise(async () => {
        const params = oauth.validateAuthResponse(server, client, back, state)
        const answer = await oauth.authorizationCodeGrantRequest(
          server,
          client,
          oauth.None(),
          params,
          redirect,
          verifier,
          { ...plain, additionalParameters: { resource: resource.href } }
        )
        assert.strictEqual(answer.headers.get("cache-control"), "no-store")
        return oauth.processAuthorizationCodeResponse(server, client, answer)
      })
      assert.deepInclude(tokens, { token_type: "bearer", expires_in: 3_600, scope })
      assert.deepInclude(tokens, { organization: mine.slug, role: "admin" })
      const next = yield* Effect.promise(async () =>
        oauth.processRefreshTokenResponse(
          server,
          client,
          await oauth.refreshTokenGrantRequest(
            server,
            client,
            oauth.None(),
            tokens.refresh_token ?? "",
            plain
          )
        )
      )
      assert.notStrictEqual(next.refresh_token, tokens.refresh_token)
      // A token for MCP opens nothing of the API.
      const api = yield* call("GET", `/v1/orgs/${mine.slug}/projects`, { token: next.access_token })
      assert.strictEqual(api.status, 401)
      yield* Effect.promise(async () =>
        oauth.processRevocationResponse(
          await oauth.revocationRequest(server, client, oauth.None(), next.refresh_token ?? "", plain)
        )
      )
      const [grant] = yield* sql(
        `select revoked_at, client_name from agent_grant where org_id = '${mine.id}'`
      )
      assert.strictEqual(grant?.["client_name"], "An editor")
      assert.isNotNull(grant?.["revoked_at"])
      const dead = yield* refresh(url, next.refresh_token ?? "", { client_id: client.client_id })
      assert.deepStrictEqual([dead.status, dead.body.error], [400, "invalid_grant"])
    })
  )

  it.effect(
    "an access token opens what its scopes name in its organization, and the audit log names it",
    () =>
      Effect.gen(function* () {
        const { call, tenant, sql } = yield* Plane
        const requests = yield* requestsOf
        const [mine, other] = [yield* tenant(), yield* tenant()]
        const { access: token } = yield* tokensFor(requests, { tenant: mine, scope })
        const projects = `/v1/orgs/${mine.slug}/projects`
        assert.strictEqual((yield* call("GET", projects, { token })).status, 200)
        const body = { name: "By an agent", slug: "by-an-agent" }
        assert.strictEqual((yield* call("POST", projects, { token, body })).status, 201)
        const outside = yield* call("GET", `${projects}/by-an-agent`, { token })
        assert.deepStrictEqual([outside.status, outside.body.code], [403, "forbidden"])
        assert.strictEqual(
          outside.headers.get("www-authenticate"),
          `Bearer error="insufficient_scope", scope="${scope} projects.get"`
        )
        assert.strictEqual((yield* call("GET", `/v1/orgs/${other.slug}/projects`, { token })).status, 404)
        assert.strictEqual((yield* call("GET", `/v1/orgs/${mine.slug}/api-keys`, { token })).status, 403)
        const me = yield* call("GET", "/v1/me", { token })
        assert.deepInclude(me.body, { credential: "grant", keyName: null })
        assert.deepInclude(me.body.grant, { clientId: "svc-cli", audience: "api", scopes: scope.split(" ") })
        assert.deepStrictEqual(
          me.body.organizations.map(({ slug, role }: { slug: string; role: string }) => [slug, role]),
          [[mine.slug, "admin"]]
        )
        const [grant] = yield* eventually(
          "the use is noted",
          sql(`select id, last_used_at from agent_grant where org_id = '${mine.id}'`),
          ([row]) => row?.["last_used_at"] !== null
        )
        const acts = yield* sql(
          `select distinct operation from audit_log where principal = 'grant:${grant?.["id"]}' order by 1`
        )
        assert.includeMembers(
          acts.map(({ operation }) => operation),
          ["agentGrants.redeem", "projects.create"]
        )
        const audit = yield* call("GET", `/v1/orgs/${mine.slug}/audit?principal=grant:${grant?.["id"]}`, {
          token: mine.owner
        })
        const { userId } = (yield* call("GET", "/v1/me", { token: mine.owner })).body
        assert.isAbove(audit.body.items.length, 1)
        for (const { agent } of audit.body.items) {
          assert.deepStrictEqual(agent, { userId, clientId: "svc-cli", clientName: "svc command line" })
        }
      })
  )

  it.effect("a code is good for its client, its address, its verifier and its resource", () =>
    Effect.gen(function* () {
      const { url, tenant, sql } = yield* Plane
      const requests = yield* requestsOf
      const mine = yield* tenant()
      const { code, verifier } = yield* letIn(requests, { tenant: mine })
      for (const [error, changed] of [
        ["invalid_grant", { client_id: "svc-mcp" }],
        ["invalid_grant", { redirect_uri: "http://127.0.0.1:4712/callback" }],
        ["invalid_grant", { code_verifier: "x".repeat(43) }],
        ["invalid_grant", { code_verifier: "short" }],
        ["invalid_grant", { code_verifier: `${verifier}\u2028` }],
        ["invalid_grant", { code: code.replace(/.$/, (last) => (last === "0" ? "1" : "0")) }],
        ["invalid_grant", { code: "svcc_x" }],
        ["invalid_target", { resource: `${url}/mcp` }],
        ["invalid_target", { resource: "https://evil.example" }],
        ["unsupported_grant_type", { grant_type: "password" }],
        ["invalid_request", { code_verifier: "" }],
        ["invalid_request", { client_id: "" }],
        ["invalid_request", { code: "" }],
        ["invalid_request", { client_id: "svc-cli\0" }]
      ] as const) {
        const answer = yield* redeem(url, code, verifier, changed)
        const expected =
          "code_verifier" in changed && changed.code_verifier.includes("\u2028") ? "invalid_request" : error
        assert.deepStrictEqual([answer.status, answer.body.error], [400, expected], JSON.stringify(changed))
      }
      const good = yield* redeem(url, code, verifier, { resource: url })
      assert.strictEqual(good.status, 200)
      // Who cannot prove that the spent code is theirs ends nothing.
      for (const changed of [
        { code_verifier: "x".repeat(43) },
        { client_id: "svc-mcp" },
        { redirect_uri: "http://127.0.0.1:4712/callback" }
      ]) {
        const stranger = yield* redeem(url, code, verifier, changed)
        assert.deepStrictEqual([stranger.status, stranger.body.error], [400, "invalid_grant"])
      }
      const alive = yield* refresh(url, good.body.refresh_token)
      assert.strictEqual(alive.status, 200)
      for (const _ of [1, 2, 3]) {
        const again = yield* redeem(url, code, verifier)
        assert.deepStrictEqual([again.status, again.body.error], [400, "invalid_grant"])
      }
      const dead = yield* refresh(url, alive.body.refresh_token)
      assert.deepStrictEqual([dead.status, dead.body.error], [400, "invalid_grant"])
      const told = yield* sql(`select outcome from audit_log
        where org_id = '${mine.id}' and operation = 'agentGrants.redeem' order by at, id`)
      assert.deepStrictEqual(told, [{ outcome: 200 }, { outcome: 400 }])
    })
  )

  it.effect("a code that is too old is none", () =>
    Effect.gen(function* () {
      const { url, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const { code, verifier } = yield* letIn(yield* requestsOf, { tenant: mine })
      yield* sql(`update authorization_code set expires_at = now() where org_id = '${mine.id}'`)
      assert.strictEqual((yield* redeem(url, code, verifier)).body.error, "invalid_grant")
      assert.deepStrictEqual(yield* sql(`select from agent_grant where org_id = '${mine.id}'`), [])
    })
  )

  it.effect("a refresh token is good once, for its client, its resource and its scopes", () =>
    Effect.gen(function* () {
      const { url, tenant, call, sql } = yield* Plane
      const mine = yield* tenant()
      const first = yield* tokensFor(yield* requestsOf, { tenant: mine, scope })
      for (const [error, changed] of [
        ["invalid_grant", { client_id: "svc-mcp" }],
        ["invalid_target", { resource: `${url}/mcp` }],
        ["invalid_scope", { scope: "projects.list projects.update" }],
        ["invalid_grant", { refresh_token: first.access }],
        [
          "invalid_grant",
          { refresh_token: first.refresh.replace(/.$/, (last) => (last === "0" ? "1" : "0")) }
        ],
        ["invalid_request", { refresh_token: "" }]
      ] as const) {
        const answer = yield* refresh(url, first.refresh, changed)
        assert.deepStrictEqual([answer.status, answer.body.error], [400, error], JSON.stringify(changed))
      }
      const second = yield* refresh(url, first.refresh, { scope: "projects.list", resource: url })
      assert.strictEqual(second.status, 200)
      // What was issued before goes on for its hour.
      const projects = `/v1/orgs/${mine.slug}/projects`
      assert.strictEqual((yield* call("GET", projects, { token: first.access })).status, 200)
      const third = yield* refresh(url, second.body.refresh_token)
      assert.strictEqual(third.status, 200)
      const reused = yield* refresh(url, first.refresh)
      assert.deepStrictEqual([reused.status, reused.body.error], [400, "invalid_grant"])
      assert.strictEqual((yield* refresh(url, third.body.refresh_token)).body.error, "invalid_grant")
      for (const token of [first.access, second.body.access_token, third.body.access_token]) {
        assert.strictEqual((yield* call("GET", projects, { token })).status, 401)
      }
      const told = yield* sql(`select outcome from audit_log
        where org_id = '${mine.id}' and operation = 'agentGrants.refresh' and principal like 'grant:%'`)
      assert.deepStrictEqual(told, [{ outcome: 400 }])
    })
  )

  it.effect("tokens that are too old open nothing, and refreshing makes them younger", () =>
    Effect.gen(function* () {
      const { url, tenant, call, sql } = yield* Plane
      const mine = yield* tenant()
      const first = yield* tokensFor(yield* requestsOf, { tenant: mine, scope })
      yield* sql(`update agent_access_token set expires_at = now() where org_id = '${mine.id}'`)
      const projects = `/v1/orgs/${mine.slug}/projects`
      assert.strictEqual((yield* call("GET", projects, { token: first.access })).status, 401)
      const second = yield* refresh(url, first.refresh)
      assert.strictEqual((yield* call("GET", projects, { token: second.body.access_token })).status, 200)
      yield* sql(`update agent_grant set expires_at = now() where org_id = '${mine.id}'`)
      assert.strictEqual((yield* refresh(url, second.body.refresh_token)).body.error, "invalid_grant")
    })
  )

  it.effect(
    "revoking either token ends the grant, for its own client alone, and is always answered alike",
    () =>
      Effect.gen(function* () {
        const { url, tenant, call, sql } = yield* Plane
        const requests = yield* requestsOf
        const mine = yield* tenant()
        const projects = `/v1/orgs/${mine.slug}/projects`
        const revoke = (token: string, client_id = "svc-cli") =>
          post(url, "/oauth/revoke", { token, client_id })
        for (const which of ["access", "refresh"] as const) {
          const tokens = yield* tokensFor(requests, { tenant: mine, scope })
          for (const token of ["nonsense", "svca_x", mine.owner, mine.adminKey]) {
            assert.strictEqual((yield* revoke(token)).status, 200)
          }
          assert.strictEqual((yield* revoke(tokens[which], "svc-mcp")).status, 200)
          assert.strictEqual((yield* call("GET", projects, { token: tokens.access })).status, 200)
          assert.strictEqual((yield* revoke(tokens[which])).status, 200)
          assert.strictEqual((yield* revoke(tokens[which])).status, 200)
          assert.strictEqual((yield* call("GET", projects, { token: tokens.access })).status, 401)
          assert.strictEqual((yield* refresh(url, tokens.refresh)).body.error, "invalid_grant")
        }
        const told = yield* sql(`select outcome from audit_log
        where org_id = '${mine.id}' and operation = 'agentGrants.revoke'`)
        assert.deepStrictEqual(told, [{ outcome: 200 }, { outcome: 200 }])
        assert.strictEqual((yield* post(url, "/oauth/revoke", { token: "x" })).body.error, "invalid_request")
      })
  )

  it.effect("what cannot be read is refused, and nothing of it reaches a statement", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const send = (path: string, init: RequestInit) =>
        Effect.promise(async () => {
          const response = await fetch(`${url}${path}`, { method: "POST", ...init })
          // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
          const answer: any = await response.json()
          return [response.status, answer.error]
        })
      const twice = "grant_type=refresh_token&client_id=svc-cli&refresh_token=a&refresh_token=b"
      const headers = { "content-type": "application/x-www-form-urlencoded" }
      for (const path of ["/oauth/token", "/oauth/revoke"]) {
        for (const init of [
          { body: "{}", headers: { "content-type": "application/json" } },
          { body: twice, headers },
          { body: `client_id=%00&token=x&grant_type=x`, headers },
          { body: `token=${"x".repeat(40_000)}`, headers },
          { body: new Uint8Array([0xff, 0x3d, 0xff]), headers },
          { headers }
        ]) {
          assert.deepStrictEqual(yield* send(path, init), [400, "invalid_request"])
        }
      }
      const json = { "content-type": "application/json" }
      for (const body of [
        "",
        "[]",
        "{}",
        '{"redirect_uris":"x"}',
        '{"redirect_uris":[1]}',
        "{".repeat(9_000)
      ]) {
        assert.deepStrictEqual(yield* send("/oauth/register", { body, headers: json }), [
          400,
          "invalid_client_metadata"
        ])
      }
      const uris = (redirect_uris: ReadonlyArray<string>) => ({
        body: JSON.stringify({ redirect_uris }),
        headers: json
      })
      for (const redirect_uris of [[], ["http://evil.example/cb"], ["javascript:alert(1)"]]) {
        assert.deepStrictEqual(yield* send("/oauth/register", uris(redirect_uris)), [
          400,
          "invalid_redirect_uri"
        ])
      }
      const wrong = yield* Effect.promise(() => fetch(`${url}/oauth/token`))
      assert.deepStrictEqual([wrong.status, wrong.headers.get("allow")], [405, "OPTIONS, POST"])
    })
  )

  it.effect("says what it is under the name that it was called by, to pages of any site", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { port } = new URL(url)
      const get = (origin: string, path: string) =>
        Effect.promise(async () => {
          const response = await fetch(`${origin}${path}`, { headers: { origin: "https://app.example" } })
          assert.strictEqual(response.headers.get("access-control-allow-origin"), "*")
          // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
          return (await response.json()) as any
        })
      const local = `http://localhost:${port}`
      const resource = "/.well-known/oauth-protected-resource"
      assert.deepInclude(yield* get(url, resource), { resource: url, authorization_servers: [url] })
      assert.deepInclude(yield* get(url, `${resource}/mcp`), { resource: `${url}/mcp` })
      assert.deepInclude(yield* get(local, `${resource}/mcp`), {
        resource: `${local}/mcp`,
        authorization_servers: [url]
      })
      const server = yield* get(local, "/.well-known/oauth-authorization-server")
      assert.deepInclude(server, {
        issuer: url,
        code_challenge_methods_supported: ["S256"],
        authorization_response_iss_parameter_supported: true
      })
      assert.include(server.scopes_supported, "projects.create")
      for (const scope of ["projects.delete", "apikeys.create", "orgs.list", "system.health"]) {
        assert.notInclude(server.scopes_supported, scope)
      }
      const preflight = yield* Effect.promise(() => fetch(`${url}/oauth/token`, { method: "OPTIONS" }))
      assert.strictEqual(preflight.status, 204)
      assert.strictEqual(preflight.headers.get("access-control-allow-origin"), "*")
    })
  )

  it.effect("the store has digests only, of every code and token that was handed out", () =>
    Effect.gen(function* () {
      const { url, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const { code, verifier } = yield* letIn(yield* requestsOf, { tenant: mine, scope })
      const { body } = yield* redeem(url, code, verifier)
      const next = yield* refresh(url, body.refresh_token)
      const secrets = [
        code,
        body.access_token,
        body.refresh_token,
        next.body.access_token,
        next.body.refresh_token
      ]
      const tables = yield* sql(
        `select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace`
      )
      for (const { relname } of tables) {
        const rows = yield* sql(`select t::text as row from "${relname}" t`)
        const text = rows.map(({ row }) => row).join("\n")
        // Bytes are shown in hexadecimal, so this finds a token that is kept as text or as its bytes.
        for (const secret of [...secrets, verifier]) {
          assert.notInclude(text, secret, String(relname))
          assert.notInclude(text, Buffer.from(secret).toString("hex"), String(relname))
          assert.notInclude(text, secret.replace(/^svc._/, ""), String(relname))
        }
      }
      const held = yield* sql(
        `select encode(digest, 'hex') as digest from agent_access_token where org_id = '${mine.id}'`
      )
      assert.sameMembers(
        held.map(({ digest }) => digest),
        [body.access_token, next.body.access_token].map((token) => digestOf(token).toString("hex"))
      )
    })
  )
})
