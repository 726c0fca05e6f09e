import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { letIn, post, redeem, refresh, requestsOf, type Tokens, tokensFor } from "./plane.ts"

const scope = "projects.create projects.list resources.watch"
const variables = { SVC_AGENT_RATE_LIMIT: "100000" }
const settings = { signInRateLimit: 100_000 }

interface Ending {
  readonly name: string
  /** What a request is answered with afterwards. */
  readonly status: number
  readonly end: (tenant: Tenant, tokens: Tokens) => Effect.Effect<{ readonly status: number }, never, Plane>
  /** A promotion afterwards revives nothing. */
  readonly promote?: boolean
}

const memberId = Effect.fnUntraced(function* ({ slug, owner }: Tenant) {
  const { call } = yield* Plane
  const { body } = yield* call("GET", `/v1/orgs/${slug}/members`, { token: owner })
  return String(body.find(({ role }: { role: string }) => role === "admin").id)
})

const endings: ReadonlyArray<Ending> = [
  {
    name: "the grant is revoked by its user",
    status: 401,
    end: Effect.fnUntraced(function* ({ slug, admin: token }) {
      const { call } = yield* Plane
      const { body } = yield* call("GET", `/v1/orgs/${slug}/agent-grants`, { token })
      return yield* call("DELETE", `/v1/orgs/${slug}/agent-grants/${body[0].grantId}`, { token })
    })
  },
  {
    name: "the client revokes its access token",
    status: 401,
    end: Effect.fnUntraced(function* (_, { access: token }) {
      return yield* post((yield* Plane).url, "/oauth/revoke", { client_id: "svc-cli", token })
    })
  },
  {
    name: "a used refresh token comes again",
    status: 401,
    end: Effect.fnUntraced(function* (_, tokens) {
      const { url } = yield* Plane
      yield* refresh(url, tokens.refresh)
      const { status } = yield* refresh(url, tokens.refresh)
      return { status: status === 400 ? 200 : status }
    })
  },
  {
    name: "the user leaves the organization",
    status: 401,
    end: Effect.fnUntraced(function* (tenant) {
      const { call } = yield* Plane
      const path = `/v1/orgs/${tenant.slug}/members/${yield* memberId(tenant)}`
      return yield* call("DELETE", path, { token: tenant.owner })
    })
  },
  {
    name: "the user's role falls below the grant's",
    status: 401,
    promote: true,
    end: Effect.fnUntraced(function* (tenant) {
      const { call } = yield* Plane
      const path = `/v1/orgs/${tenant.slug}/members/${yield* memberId(tenant)}`
      return yield* call("PATCH", path, { token: tenant.owner, body: { role: "member" } })
    })
  },
  {
    name: "the organization is deleted",
    status: 401,
    end: Effect.fnUntraced(function* ({ slug, owner: token }) {
      return yield* (yield* Plane).call("DELETE", `/v1/orgs/${slug}`, { token })
    })
  }
]

/** What an open stream tells, until it ends. */
const watch = Effect.fnUntraced(function* (url: string, slug: string, token: string) {
  let told = ""
  const fiber = yield* Effect.forkChild(
    Effect.promise(async () => {
      const response = await fetch(`${url}/v1/orgs/${slug}/resources/watch`, {
        headers: { authorization: `Bearer ${token}` }
      })
      for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? []) told += text
    })
  )
  const heard = eventually(
    "the stream tells something",
    Effect.sync(() => told),
    (text) => text.includes("event:")
  )
  return { fiber, heard, told: Effect.sync(() => told) }
})

const eight = Array.from({ length: 8 }, (_, index) => index)
const outcomes = (
  answers: ReadonlyArray<{ readonly status: number; readonly body: { readonly error?: string } }>
) => answers.map(({ status, body }) => (status === 200 ? "tokens" : (body.error ?? status))).sort()
const oneOf = [...eight.slice(1).map(() => "invalid_grant"), "tokens"]

layer(testPlane(settings, variables), { excludeTestServices: true })("a grant", (it) => {
  const world = Effect.gen(function* () {
    const { url } = yield* Plane
    const requests: AuthorizationRequests["Service"] = yield* requestsOf
    return { requests, urls: [url, yield* anotherApi(settings, variables)] }
  })

  it.effect("ends with the next request and the open stream, in every process, however it is ended", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { call, tenant, url } = yield* Plane
        const { requests, urls } = yield* world
        for (const { name, status, end, promote = false } of endings) {
          const mine = yield* tenant()
          const tokens = yield* tokensFor(requests, { tenant: mine, who: "admin", scope })
          const projects = `/v1/orgs/${mine.slug}/projects`
          const statuses = Effect.forEach(urls, (one) =>
            Effect.promise(async () => {
              const headers = { authorization: `Bearer ${tokens.access}` }
              return (await fetch(`${one}${projects}`, { headers })).status
            })
          )
          assert.deepStrictEqual(yield* statuses, [200, 200], name)
          const streams = yield* Effect.forEach(urls, (one) => watch(one, mine.slug, tokens.access))
          const body = { name: "One", slug: "one" }
          yield* call("POST", projects, { token: tokens.access, body })
          for (const { heard } of streams) yield* heard
          assert.strictEqual((yield* end(mine, tokens)).status, 200, name)
          assert.deepStrictEqual(yield* statuses, [status, status], name)
          // A stream looks whether it may go on when it has something to tell.
          yield* call("POST", projects, { token: mine.owner, body: { name: "Two", slug: "two" } })
          for (const { fiber, told } of streams) {
            yield* Fiber.join(fiber)
            assert.notInclude(yield* told, "two", name)
          }
          if (promote) {
            const path = `/v1/orgs/${mine.slug}/members`
            const { body: members } = yield* call("GET", path, { token: mine.owner })
            for (const { id, role } of members) {
              if (role !== "member") continue
              const promoted = yield* call("PATCH", `${path}/${id}`, {
                token: mine.owner,
                body: { role: "admin" }
              })
              assert.strictEqual(promoted.status, 200)
            }
            assert.deepStrictEqual(yield* statuses, [status, status], name)
          }
          const dead = yield* refresh(url, tokens.refresh)
          assert.deepStrictEqual([dead.status, dead.body.error], [400, "invalid_grant"], name)
        }
      })
    )
  )

  it.effect("stays as long as its role does, whatever else becomes of its user's", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant()
      const requests = yield* requestsOf
      const { access: token } = yield* tokensFor(requests, {
        tenant: mine,
        who: "admin",
        role: "member",
        scope: "projects.list"
      })
      const path = `/v1/orgs/${mine.slug}/members/${yield* memberId(mine)}`
      for (const role of ["owner", "member", "admin"]) {
        assert.strictEqual((yield* call("PATCH", path, { token: mine.owner, body: { role } })).status, 200)
        assert.strictEqual(
          (yield* call("GET", `/v1/orgs/${mine.slug}/projects`, { token })).status,
          200,
          role
        )
      }
    })
  )

  it.effect("a code dies with the role that it was approved in", () =>
    Effect.gen(function* () {
      const { call, tenant, url } = yield* Plane
      const requests = yield* requestsOf
      const mine = yield* tenant()
      const path = `/v1/orgs/${mine.slug}/members/${yield* memberId(mine)}`
      const set = (role: string) => call("PATCH", path, { token: mine.owner, body: { role } })
      const { code, verifier } = yield* letIn(requests, { tenant: mine, who: "admin", scope })
      yield* set("member")
      yield* set("admin")
      assert.strictEqual((yield* redeem(url, code, verifier)).body.error, "invalid_grant")
    })
  )

  it.effect("is made by one of eight redemptions at once, over two processes, and ends with the others", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { call, tenant, url } = yield* Plane
        const { requests, urls } = yield* world
        const mine = yield* tenant()
        for (const _ of [1, 2, 3]) {
          const { code, verifier } = yield* letIn(requests, { tenant: mine, scope })
          const answers = yield* Effect.forEach(eight, (at) => redeem(urls[at % 2] ?? url, code, verifier), {
            concurrency: "unbounded"
          })
          assert.deepStrictEqual(outcomes(answers), oneOf)
          const { body } = answers.find(({ status }) => status === 200) ?? { body: {} }
          const projects = `/v1/orgs/${mine.slug}/projects`
          assert.strictEqual((yield* call("GET", projects, { token: body.access_token })).status, 401)
          assert.strictEqual((yield* refresh(url, body.refresh_token)).body.error, "invalid_grant")
        }
      })
    )
  )

  it.effect("is refreshed by one of eight at once, over two processes, and ends with the others", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { call, tenant, url } = yield* Plane
        const { requests, urls } = yield* world
        const mine = yield* tenant()
        for (const _ of [1, 2, 3]) {
          const tokens = yield* tokensFor(requests, { tenant: mine, scope })
          const answers = yield* Effect.forEach(eight, (at) => refresh(urls[at % 2] ?? url, tokens.refresh), {
            concurrency: "unbounded"
          })
          assert.deepStrictEqual(outcomes(answers), oneOf)
          const { body } = answers.find(({ status }) => status === 200) ?? { body: {} }
          for (const token of [tokens.access, body.access_token]) {
            assert.strictEqual((yield* call("GET", `/v1/orgs/${mine.slug}/projects`, { token })).status, 401)
          }
          assert.strictEqual((yield* refresh(url, body.refresh_token)).body.error, "invalid_grant")
        }
      })
    )
  )

  it.effect("has few access tokens at a time, and of one person's grants the newest fifty go on", () =>
    Effect.gen(function* () {
      const { tenant, url, sql } = yield* Plane
      const requests = yield* requestsOf
      const mine = yield* tenant()
      const made = yield* tokensFor(requests, { tenant: mine, scope })
      let token = made.refresh
      for (const _ of eight) token = (yield* refresh(url, token)).body.refresh_token
      const count = (from: string) =>
        Effect.map(
          sql(`select count(*)::int as n from ${from} where org_id = '${mine.id}'`),
          (rows) => rows[0]?.["n"]
        )
      assert.strictEqual(yield* count("agent_access_token"), 5)
      yield* sql(`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes, created_at)
        select org_id, gen_random_uuid(), user_id, 'c', 'C', 'api', 'member', '{}', now() - interval '1 day'
        from agent_grant, generate_series(1, 60) where org_id = '${mine.id}'`)
      yield* tokensFor(requests, { tenant: mine, scope })
      const live = "(select org_id from agent_grant where revoked_at is null) as live"
      assert.strictEqual(yield* count(live), 50)
      assert.strictEqual((yield* refresh(url, token)).status, 200)
      const audited =
        yield* sql(`select distinct count(*) over ()::int as n, principal = 'grant:' || (select id::text
          from agent_grant where org_id = '${mine.id}' order by created_at desc limit 1) as by_the_newest
        from audit_log where org_id = '${mine.id}' and operation = 'agentGrants.revoke'`)
      assert.deepStrictEqual(audited, [{ n: 12, by_the_newest: true }])

      // What is over stays, but not without bound.
      yield* sql(`insert into agent_grant
          (org_id, id, user_id, client_id, client_name, audience, role, scopes, created_at, revoked_at)
        select org_id, gen_random_uuid(), user_id, 'c', 'C', 'api', 'member', '{}', now() - interval '2 days', now()
        from agent_grant g, generate_series(1, 20) where org_id = '${mine.id}'`)
      yield* tokensFor(requests, { tenant: mine, scope })
      assert.strictEqual(yield* count(live), 50)
      assert.strictEqual(
        yield* count("(select org_id from agent_grant where revoked_at is not null) as over"),
        200
      )
    })
  )
})
