import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { ApiKeyList, NewApiKey } from "#src/organizations/api/api-keys.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

layer(testPlane(), { excludeTestServices: true })("API keys", (it) => {
  it.effect("are shown once, open what their role allows, and nothing once they are revoked", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const org = `/v1/orgs/${mine.slug}`
      const at = { token: mine.admin }
      const made = yield* call("POST", `${org}/api-keys`, { ...at, body: { name: "CI" } })
      assert.strictEqual(made.status, 201)
      yield* fits(NewApiKey, made.body)
      assert.match(made.body.key, /^svc_[0-9a-f]{40}$/)
      assert.strictEqual(made.body.role, "admin")
      assert.strictEqual(made.body.keyPrefix, `${made.body.key.slice(0, 8)}...`)
      const member = yield* call("POST", `${org}/api-keys`, {
        ...at,
        body: { name: "Reader", role: "member" }
      })

      const create = (token: string, slug: string) =>
        Effect.map(
          call("POST", `${org}/projects`, { token, body: { name: "P", slug } }),
          ({ status }) => status
        )
      assert.strictEqual(yield* create(made.body.key, "by-admin"), 201)
      assert.strictEqual(yield* create(member.body.key, "by-member"), 403)
      assert.strictEqual((yield* call("GET", `${org}/projects`, { token: member.body.key })).status, 200)

      const listed = yield* call("GET", `${org}/api-keys`, { token: mine.owner })
      yield* fits(ApiKeyList, listed.body)
      assert.strictEqual(listed.body.length, 4)
      assert.notInclude(listed.text, made.body.key.slice(8))
      const [stored] = yield* sql(`select k::text as row from api_key k where id = '${made.body.id}'`)
      assert.notInclude(String(stored?.["row"]), made.body.key.slice(8))

      const revoke = call("DELETE", `${org}/api-keys/${made.body.id}`, at)
      const first = yield* revoke
      assert.strictEqual(first.status, 200)
      assert.strictEqual((yield* call("GET", `${org}/projects`, { token: made.body.key })).status, 401)
      assert.strictEqual((yield* revoke).text, first.text)
      const [gone] = (yield* call("GET", `${org}/api-keys`, at)).body.filter(
        ({ id }: { id: string }) => id === made.body.id
      )
      assert.strictEqual(gone.revokedAt, first.body.revokedAt)
    })
  )

  it.effect("never manage keys, members or the organization, and belong to one organization", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant()
      const other = yield* tenant()
      const org = `/v1/orgs/${mine.slug}`
      const attempts: ReadonlyArray<readonly [method: string, path: string, body?: unknown]> = [
        ["GET", "/v1/orgs"],
        ["POST", "/v1/orgs", { name: "N", slug: "new-org" }],
        ["PATCH", org, { name: "N" }],
        ["DELETE", org],
        ["GET", `${org}/api-keys`],
        ["POST", `${org}/api-keys`, { name: "another" }],
        ["GET", `${org}/members`],
        ["GET", `${org}/invitations`],
        ["POST", `${org}/invitations`, { email: "a@example.test", role: "member" }],
        ["GET", `${org}/agent-grants`]
      ]
      for (const [method, path, body] of attempts) {
        const answer = yield* call(method, path, { token: mine.adminKey, body })
        assert.deepStrictEqual([answer.status, answer.body.code], [403, "forbidden"], `${method} ${path}`)
        assert.include(answer.body.detail, "session")
      }
      const mineToo = yield* call("POST", `${org}/api-keys`, { token: mine.owner, body: { name: "k" } })
      const across = yield* call("DELETE", `/v1/orgs/${other.slug}/api-keys/${mineToo.body.id}`, {
        token: other.owner
      })
      assert.strictEqual(across.status, 404)
      assert.strictEqual((yield* call("GET", org, { token: mineToo.body.key })).status, 200)
      assert.strictEqual(
        (yield* call("GET", `/v1/orgs/${other.slug}`, { token: mineToo.body.key })).status,
        404
      )
    })
  )

  it.effect("a name or a role that cannot be is refused; members make none", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant()
      const path = `/v1/orgs/${mine.slug}/api-keys`
      const create = (body: unknown, token = mine.owner) => call("POST", path, { token, body })
      for (const name of ["", "x".repeat(101), "a\nb", 1, undefined]) {
        const refused = yield* create({ name })
        assert.deepStrictEqual([refused.status, refused.body.errors[0].pointer], [422, "/name"])
      }
      for (const role of ["owner", "god", null]) {
        const refused = yield* create({ name: "k", role })
        assert.deepStrictEqual([refused.status, refused.body.errors[0].pointer], [422, "/role"])
      }
      assert.strictEqual((yield* create({ name: "😀".repeat(100) })).status, 201)
      assert.strictEqual((yield* create({ name: "k" }, mine.member)).status, 403)
      assert.strictEqual((yield* call("DELETE", `${path}/nope`, { token: mine.owner })).status, 404)
    })
  )
})
