import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { MemberList, MemberView } from "#src/organizations/api/members.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { enrol, knownToken, person } from "#test/setup/people.ts"

const setUp = Effect.gen(function* () {
  const { call, tenant } = yield* Plane
  const mine = yield* tenant()
  const path = `/v1/orgs/${mine.slug}/members`
  const list = Effect.map(call("GET", path, { token: mine.owner }), ({ body }) => body)
  const idOf = (role: string) =>
    Effect.map(
      list,
      (all: ReadonlyArray<{ id: string; role: string }>) => all.find((one) => one.role === role)?.id
    )
  const setRole = (token: string, id: string | undefined, role: string) =>
    Effect.map(call("PATCH", `${path}/${id}`, { token, body: { role } }), ({ status, body }) => [
      status,
      status < 400 ? body.role : body.code
    ])
  const remove = (token: string, id: string | undefined) =>
    Effect.map(call("DELETE", `${path}/${id}`, { token }), ({ status, body }) => [status, body.code])
  const ids = { owner: yield* idOf("owner"), admin: yield* idOf("admin"), member: yield* idOf("member") }
  return { mine, path, list, setRole, remove, ids }
})

layer(testPlane(), { excludeTestServices: true })("members", (it) => {
  it.effect("are listed for members, with what their accounts say, and for nobody else", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const { mine, path, setRole, ids } = yield* setUp
      const listed = yield* call("GET", path, { token: mine.member })
      assert.strictEqual(listed.status, 200)
      yield* fits(MemberList, listed.body)
      assert.deepStrictEqual(
        listed.body.map(({ role, email }: { role: string; email: string }) => [role, email]),
        ["owner", "admin", "member"].map((role) => [role, `${role}-${mine.slug}@example.test`])
      )
      const other = yield* tenant()
      assert.strictEqual((yield* call("GET", path, { token: other.owner })).status, 404)
      assert.strictEqual((yield* call("GET", path, { token: mine.adminKey })).status, 403)
      // Members of one organization are nothing in the path of another.
      const across = `/v1/orgs/${other.slug}/members/${ids.member}`
      for (const method of ["PATCH", "DELETE"])
        assert.strictEqual(
          (yield* call(method, across, { token: other.owner, body: { role: "admin" } })).status,
          404
        )
      assert.deepStrictEqual(yield* setRole(mine.owner, "nope", "admin"), [404, "not_found"])
      const odd = yield* call("PATCH", `${path}/${ids.member}`, { token: mine.owner, body: { role: "god" } })
      assert.deepStrictEqual([odd.status, odd.body.errors[0].pointer], [422, "/role"])
    })
  )

  it.effect("admins change members and admins, owners everybody, and nobody unmakes the last owner", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { mine, path, setRole, remove, ids } = yield* setUp
      const { owner, admin, member } = mine
      assert.deepStrictEqual(yield* setRole(member, ids.member, "admin"), [403, "forbidden"])
      assert.deepStrictEqual(yield* remove(member, ids.member), [403, "forbidden"])
      // Admins neither make nor touch owners, whatever their words are.
      assert.deepStrictEqual(yield* setRole(admin, ids.member, "owner"), [403, "forbidden"])
      assert.deepStrictEqual(yield* setRole(admin, ids.admin, "owner"), [403, "forbidden"])
      assert.deepStrictEqual(yield* setRole(admin, ids.owner, "member"), [403, "forbidden"])
      assert.deepStrictEqual(yield* setRole(admin, ids.owner, "owner"), [403, "forbidden"])
      assert.deepStrictEqual(yield* remove(admin, ids.owner), [403, "forbidden"])
      assert.deepStrictEqual(yield* setRole(admin, ids.member, "admin"), [200, "admin"])
      assert.deepStrictEqual(yield* setRole(admin, ids.member, "member"), [200, "member"])

      assert.deepStrictEqual(yield* setRole(owner, ids.owner, "admin"), [422, "last_owner"])
      assert.deepStrictEqual(yield* setRole(owner, ids.owner, "owner"), [200, "owner"])
      assert.deepStrictEqual(yield* remove(owner, ids.owner), [422, "last_owner"])
      const made = yield* call("PATCH", `${path}/${ids.admin}`, { token: owner, body: { role: "owner" } })
      yield* fits(MemberView, made.body)
      assert.strictEqual(made.body.role, "owner")
      // The role counts from the next request on.
      assert.deepStrictEqual(yield* setRole(admin, ids.owner, "member"), [200, "member"])
      assert.deepStrictEqual(yield* setRole(owner, ids.owner, "owner"), [403, "forbidden"])
      assert.deepStrictEqual(yield* remove(admin, ids.admin), [422, "last_owner"])
      assert.deepStrictEqual(yield* remove(admin, ids.owner), [200, undefined])
      assert.strictEqual((yield* call("GET", path, { token: owner })).status, 404)
    })
  )

  it.effect("the person of a personal organization stays its owner, even beside other owners", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const { mine, setRole, remove, ids } = yield* setUp
      yield* sql(`update organization set is_personal = true where id = '${mine.id}'`)
      assert.deepStrictEqual(yield* setRole(mine.owner, ids.admin, "owner"), [200, "owner"])
      assert.deepStrictEqual(yield* remove(mine.admin, ids.owner), [422, "personal_organization"])
      assert.deepStrictEqual(yield* setRole(mine.owner, ids.owner, "member"), [422, "personal_organization"])
      assert.deepStrictEqual(yield* setRole(mine.owner, ids.admin, "member"), [200, "member"])
    })
  )

  it.effect("whoever leaves leaves nothing behind that opens the organization", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const { mine, remove, setRole, ids } = yield* setUp
      const orgPath = `/v1/orgs/${mine.slug}`
      const guest = yield* person()
      const key = yield* call("POST", `${orgPath}/api-keys`, { token: mine.admin, body: { name: "ci" } })
      const invited = yield* call("POST", `${orgPath}/invitations`, {
        token: mine.admin,
        body: { email: guest.email, role: "admin" }
      })
      const accept = Effect.gen(function* () {
        const answer = yield* call("POST", `/v1/invitations/${yield* knownToken(invited.body.id)}/accept`, {
          token: guest.token
        })
        return [answer.status, answer.body.code]
      })
      const userId = (yield* sql(`select user_id from member where id = '${ids.admin}'`))[0]?.["user_id"]
      yield* sql(`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
        values ('${mine.id}', gen_random_uuid(), '${userId}', 'svc-cli', 'svc', 'api', 'member', '{projects.list}')`)
      const may = (method: string, path: string, body?: unknown) =>
        Effect.map(call(method, `${orgPath}${path}`, { token: key.body.key, body }), ({ status }) => status)
      assert.strictEqual(yield* may("POST", "/projects", { name: "P", slug: "one" }), 201)

      // Demoted: the key does what its creator may do, the open invitation is withdrawn.
      assert.deepStrictEqual(yield* setRole(mine.owner, ids.admin, "member"), [200, "member"])
      assert.strictEqual(yield* may("POST", "/projects", { name: "P", slug: "two" }), 403)
      assert.strictEqual(yield* may("GET", "/projects"), 200)
      const me = yield* call("GET", "/v1/me", { token: key.body.key })
      assert.strictEqual(me.body.organizations[0].role, "member")
      assert.deepStrictEqual(yield* accept, [409, "invitation_revoked"])
      // Promoted: the key is what it was.
      yield* setRole(mine.owner, ids.admin, "admin")
      assert.strictEqual(yield* may("POST", "/projects", { name: "P", slug: "two" }), 201)

      assert.deepStrictEqual(yield* remove(mine.owner, ids.admin), [200, undefined])
      assert.strictEqual(yield* may("GET", "/projects"), 401)
      const keys = yield* call("GET", `${orgPath}/api-keys`, { token: mine.owner })
      const listed = keys.body.find(({ id }: { id: string }) => id === key.body.id)
      assert.isString(listed.revokedAt)
      const [grant] = yield* sql(`select revoked_at from agent_grant where org_id = '${mine.id}'`)
      assert.isNotNull(grant?.["revoked_at"])
    })
  )

  it.effect("owners who demote or remove each other at the same moment leave one", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const refusals = new Map<string, number>()
      for (let round = 0; round < 25; round++) {
        const { mine, path } = yield* setUp
        const second = yield* person()
        const secondId = yield* enrol(mine.id, second.userId, "owner")
        const [first] = yield* sql(
          `select id from member where org_id = '${mine.id}' and role = 'owner' and id <> '${secondId}'`
        )
        // Each at the other, or each at itself; by demotion, by removal or one of each.
        const atOther = round % 2 === 0
        const act = (token: string, id: unknown, demote: boolean) =>
          demote
            ? call("PATCH", `${path}/${id}`, { token, body: { role: "member" } })
            : call("DELETE", `${path}/${id}`, { token })
        const answers = yield* Effect.all(
          [
            act(mine.owner, atOther ? secondId : first?.["id"], round % 3 !== 0),
            act(second.token, atOther ? first?.["id"] : secondId, round % 3 !== 1)
          ],
          { concurrency: "unbounded" }
        )
        const owners = yield* sql(`select id from member where org_id = '${mine.id}' and role = 'owner'`)
        assert.strictEqual(owners.length, 1, `round ${round}: ${answers.map((one) => one.text)}`)
        assert.strictEqual(answers.filter(({ status }) => status === 200).length, 1)
        const refused = answers.find(({ status }) => status !== 200)
        refusals.set(refused?.body.code, (refusals.get(refused?.body.code) ?? 0) + 1)
      }
      // Whoever lost the role meanwhile may not, whoever would be the last cannot.
      assert.isAbove(refusals.get("last_owner") ?? 0, 0)
      for (const code of refusals.keys()) assert.include(["last_owner", "forbidden", "not_found"], code)
    })
  )
})
