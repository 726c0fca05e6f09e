import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { Role } from "#schemas/kind.ts"
import { type CredentialKind, digestOf } from "#src/access/Access.ts"
import { newAccessToken } from "#src/agents/tokens.ts"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"

const operations = Object.values(Api.groups).flatMap((group) =>
  Object.values(group.endpoints).map((endpoint) => {
    const operation = Context.get(endpoint.annotations, Operation)
    if (operation === undefined) throw new Error(`${endpoint.path} has no metadata`)
    return { method: endpoint.method, path: endpoint.path, operation }
  })
)
const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }
const nowhere = "00000000-0000-7000-8000-000000000000"
const fill = (path: string, org: string) =>
  path
    .replace(":orgId", org)
    .replace(":projectId", "nope")
    .replaceAll(/:(uid|[A-Za-z]+Id)/g, nowhere)
    .replace(":key", "NOPE")
    .replace(":token", "nope")

/** Who calls: with what, and as whom in the addressed organization. */
interface Standing {
  readonly name: string
  readonly token: string | null
  readonly credential: CredentialKind | undefined
  readonly role: Role | undefined
  /** Of an agent's token: whether it has the operation's scope. */
  readonly inScope?: boolean
}

/** The statuses that the metadata imply, for a body that no operation takes. */
const implied = (
  path: string,
  operation: Operation,
  { credential, role, inScope = true }: Standing
): ReadonlyArray<number> => {
  if (credential === undefined) return [401]
  if (operation.target !== null && role === undefined) return [404]
  if (!operation.credentials.includes(credential) || !inScope) return [403]
  if (operation.target === null) return path.includes(":") ? [404] : [200, 422]
  if (operation.role !== null && rank[role ?? "member"] < rank[operation.role]) return [403]
  const namesMore = path.replace(":orgId", "").includes(":")
  return operation.target.type === "organization" && !namesMore ? [200, 201, 202, 422] : [404]
}

/** An agent of somebody with that role; whatever its scopes say, even what no agent is granted. Answers its token. */
const agent = Effect.fnUntraced(function* (
  { id, ...sessions }: Tenant,
  audience: "api" | "mcp",
  role: "admin" | "member",
  scopes: ReadonlyArray<string>
) {
  const { sql } = yield* Plane
  const [grant, token] = [randomUUIDv7(), newAccessToken()]
  const hex = (digest: Buffer) => digest.toString("hex")
  yield* sql(`
    with g as (
      insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
      select '${id}', '${grant}', user_id, 'c', 'C', '${audience}', '${role}', '{${scopes}}'
      from session where digest = decode('${hex(digestOf(sessions[role]))}', 'hex') returning org_id, id
    )
    insert into agent_access_token select org_id, id, decode('${hex(token.digest)}', 'hex'), now() + interval '1 hour'
    from g`)
  return Redacted.value(token.token)
})

layer(testPlane(), { excludeTestServices: true, timeout: "3 minutes" })("the gate", (it) => {
  it.effect(
    "every operation answers every kind of caller as its metadata implies, in the fixed order of checks",
    () =>
      Effect.gen(function* () {
        const { call, tenant, sql } = yield* Plane
        const foreign = yield* tenant()
        const dead = yield* tenant()
        yield* sql(`update api_key set revoked_at = now() where org_id = '${dead.id}'`)
        const all = operations.map(({ operation }) => operation.id)
        const elsewhere = yield* agent(foreign, "api", "admin", all)
        const newHome = Effect.gen(function* () {
          const mine = yield* tenant()
          return {
            mine,
            ofAdmin: yield* agent(mine, "api", "admin", all),
            ofMember: yield* agent(mine, "api", "member", all),
            forMcp: yield* agent(mine, "mcp", "admin", all)
          }
        })
        const readers = yield* newHome
        const wrong: Array<string> = []
        for (const { method, path, operation } of operations) {
          if (operation.credentials.length === 0 || operation.id === "resources.watch") continue
          // What one destroys, the next one needs: each that may has a tenant of its own.
          const { mine, ofAdmin, ofMember, forMcp } = method === "GET" ? readers : yield* newHome
          const others = all.filter((id) => id !== operation.id)
          const by = (
            name: string,
            token: string | null,
            credential?: CredentialKind,
            role?: Role
          ): Standing => ({ name, token, credential, role })
          const callers = [
            by("nobody", null),
            by("an unknown key", `svc_${"0".repeat(40)}`),
            by("a revoked key", dead.adminKey),
            by("a member's key", mine.memberKey, "key", "member"),
            by("an admin's key", mine.adminKey, "key", "admin"),
            by("a member", mine.member, "session", "member"),
            by("an admin", mine.admin, "session", "admin"),
            by("a foreign owner", foreign.owner, "session"),
            by("a foreign key", foreign.adminKey, "key"),
            by("an agent of an admin", ofAdmin, "grant", "admin"),
            by("an agent of a member", ofMember, "grant", "member"),
            by("an agent elsewhere", elsewhere, "grant"),
            by("an agent for MCP", forMcp),
            {
              ...by(
                "an agent without the scope",
                yield* agent(mine, "api", "admin", others),
                "grant",
                "admin"
              ),
              inScope: false
            },
            by("the owner", mine.owner, "session", "owner")
          ]
          for (const caller of callers) {
            // A body that no operation takes: what is refused before it is read must not depend on it.
            const body = ["POST", "PUT", "PATCH"].includes(method) ? { body: { nonsense: true } } : {}
            const answer = yield* call(method, fill(path, mine.slug), { token: caller.token, ...body })
            const expected = implied(path, operation, caller)
            if (!expected.includes(answer.status))
              wrong.push(`${operation.id} for ${caller.name}: ${answer.status}, expected ${expected}`)
            if (answer.status >= 400 && answer.body.code === undefined)
              wrong.push(`${operation.id} for ${caller.name}: no problem body`)
            if (answer.status === 401 && answer.headers.get("www-authenticate") !== "Bearer")
              wrong.push(`${operation.id}: no challenge`)
          }
        }
        assert.deepStrictEqual(wrong, [])
      }),
    900_000
  )

  it.effect("a path answers 405 with Allow to methods it does not have", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const methods = new Map<string, Set<string>>()
      for (const { method, path } of operations)
        methods.set(path, (methods.get(path) ?? new Set()).add(method))
      for (const [path, known] of methods) {
        for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
          if (known.has(method)) continue
          const answer = yield* call(method, fill(path, "main"))
          assert.strictEqual(answer.status, 405, `${method} ${path}`)
          for (const one of known) assert.include(answer.headers.get("allow") ?? "", one)
        }
      }
    })
  )

  it.effect("hostile credentials never reach a statement and never cause a server error", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const hostile = [
        "' or 1=1 --",
        "svc_' or '1'='1",
        "svc_%00",
        "Bearer Bearer",
        `svc_${"f".repeat(5_000)}`,
        "{}",
        "null",
        "svcs_x"
      ]
      for (const value of hostile) {
        for (const headers of [
          { authorization: `Bearer ${value}` },
          { authorization: value },
          { cookie: `svc_session=${value}` }
        ]) {
          const answer = yield* call("GET", "/v1/orgs/main/projects", { token: null, headers })
          assert.strictEqual(answer.status, 401, JSON.stringify(headers))
        }
      }
    })
  )

  it.effect("unreadable requests get the status that says what is wrong", () =>
    Effect.gen(function* () {
      const { call, url } = yield* Plane
      const target = "/v1/orgs/main/projects"
      const malformed = yield* call("POST", target, { raw: '{"name": ' })
      assert.deepStrictEqual([malformed.status, malformed.body.code], [400, "malformed_body"])
      const text = yield* call("POST", target, { raw: "x", headers: { "content-type": "text/plain" } })
      assert.strictEqual(text.status, 415)
      const large = yield* call("POST", target, { body: { name: "x".repeat(2_000_000), slug: "big" } })
      assert.deepStrictEqual([large.status, large.body.code], [413, "payload_too_large"])
      assert.strictEqual((yield* call("GET", "/v1/nothing/here")).status, 404)
      const bound = yield* call("GET", "/v1/health", { headers: { "x-request-id": "trace-12345678" } })
      assert.strictEqual(bound.headers.get("x-request-id"), "trace-12345678")
      const status = yield* Effect.promise(async () => {
        const http = await import("node:http")
        return new Promise<number>((resolve) => {
          const { port } = new URL(url)
          http.get(
            { port, host: "127.0.0.1", path: "/v1/health", headers: { host: "evil.example" } },
            (response) => {
              response.resume()
              resolve(response.statusCode ?? 0)
            }
          )
        })
      })
      assert.strictEqual(status, 421)
    })
  )

  it.effect("a request with an idempotency key is carried out once and answered the same", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const target = "/v1/orgs/main/projects"
      const headers = { "idempotency-key": "first-try" }
      const body = { name: "Once", slug: "once" }
      const first = yield* call("POST", target, { body, headers })
      const second = yield* call("POST", target, { body, headers })
      assert.strictEqual(first.status, 201)
      assert.strictEqual(second.text, first.text)
      assert.strictEqual(second.headers.get("idempotency-replayed"), "true")
      const other = yield* call("POST", target, { body: { ...body, slug: "other" }, headers })
      assert.deepStrictEqual([other.status, other.body.code], [409, "idempotency_key_reused"])
      // A one-time secret in a kept answer is sealed.
      yield* call("POST", "/v1/orgs/main/projects/once/caches", {
        body: { name: "one", sku: "cache-n1", region: "local" },
        headers: { "idempotency-key": "cache" }
      })
      const again = yield* call("POST", "/v1/orgs/main/projects/once/caches", {
        body: { name: "one", sku: "cache-n1", region: "local" },
        headers: { "idempotency-key": "cache" }
      })
      assert.match(again.body.connectionString, /^rediss:/)
      const password = new URL(again.body.connectionString).password
      const kept = yield* sql("select encode(sealed, 'escape') as text from idempotency")
      assert.isFalse(JSON.stringify(kept).includes(password))
    })
  )

  it.effect("the specification describes every operation with its metadata", () =>
    Effect.gen(function* () {
      const { call, metricsUrl } = yield* Plane
      const { body } = yield* call("GET", "/v1/spec", { token: null })
      assert.strictEqual(body.openapi, "3.1.0")
      for (const { method, path, operation } of operations) {
        const described = body.paths[path.replaceAll(/:([A-Za-z]+)/g, "{$1}")][method.toLowerCase()]
        assert.strictEqual(described.operationId, operation.id)
        assert.strictEqual(described["x-risk"], operation.risk)
        assert.strictEqual(described["x-role"], operation.role)
        const success = Object.keys(described.responses).filter((status) => status.startsWith("2"))
        assert.isNotEmpty(success)
        assert.isObject(Object.values(described.responses[success[0]!].content ?? { any: { schema: {} } })[0])
      }
      const docs = yield* call("GET", "/docs", { token: null })
      assert.strictEqual(docs.status, 200)
      const metrics = yield* Effect.promise(async () => (await fetch(`${metricsUrl}/metrics`)).text())
      assert.include(metrics, "svc_reconcile_duration_seconds")
      assert.include(metrics, "svc_queue_depth")
    })
  )
})

layer(testPlane({ rateLimit: 40 }), { excludeTestServices: true })("rate limits", (it) => {
  it.effect("a credential that asks too often is told when to come back", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* bucketsStandStill
      const answers = yield* Effect.forEach(Array.from({ length: 60 }), () => call("GET", "/v1/me"), {
        concurrency: 4
      })
      const refused = answers.find((answer) => answer.status === 429)
      assert.isDefined(refused)
      assert.strictEqual(refused?.body.code, "rate_limited")
      assert.isAtLeast(Number(refused?.headers.get("retry-after")), 1)
      assert.isAtLeast(answers.filter((answer) => answer.status === 200).length, 40)
      assert.include(answers[0]?.headers.get("ratelimit-policy") ?? "", "q=40;w=60")
    })
  )
})
