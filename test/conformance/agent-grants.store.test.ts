import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { AgentGrantList } from "#src/agents/api.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

layer(testPlane(), { excludeTestServices: true })("agent grants", (it) => {
  it.effect("members see and revoke their own, admins everybody's, and no other organization any", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const other = yield* tenant()
      const path = `/v1/orgs/${mine.slug}/agent-grants`
      const members = yield* sql(`select role, user_id from member where org_id = '${mine.id}'`)
      const grants: Record<string, string> = {}
      for (const { role, user_id } of members) {
        const id = randomUUIDv7()
        grants[String(role)] = id
        yield* sql(`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
          values ('${mine.id}', '${id}', '${user_id}', 'svc-cli', 'svc', 'api', 'member', '{projects.list,caches.list}')`)
      }
      const list = (token: string) => call("GET", path, { token })
      const mineOnly = yield* list(mine.member)
      yield* fits(AgentGrantList, mineOnly.body)
      assert.deepStrictEqual(
        mineOnly.body.map(({ grantId, scopes }: { grantId: string; scopes: unknown }) => [grantId, scopes]),
        [[grants["member"], ["projects.list", "caches.list"]]]
      )
      for (const token of [mine.admin, mine.owner]) assert.strictEqual((yield* list(token)).body.length, 3)
      assert.deepStrictEqual(
        (yield* call("GET", `/v1/orgs/${other.slug}/agent-grants`, { token: other.owner })).body,
        []
      )

      const revoke = (role: string, token: string, slug = mine.slug) =>
        call("DELETE", `/v1/orgs/${slug}/agent-grants/${grants[role]}`, { token })
      assert.strictEqual((yield* revoke("admin", mine.member)).status, 404)
      assert.strictEqual((yield* revoke("admin", other.owner, other.slug)).status, 404)
      const first = yield* revoke("member", mine.member)
      assert.strictEqual(first.status, 200)
      assert.strictEqual((yield* revoke("member", mine.member)).text, first.text)
      assert.strictEqual((yield* revoke("member", mine.admin)).text, first.text)
      assert.strictEqual((yield* revoke("owner", mine.admin)).status, 200)
      assert.strictEqual((yield* revoke("admin", mine.adminKey)).status, 403)
      const left = (yield* list(mine.owner)).body.filter(
        (one: { revokedAt: unknown }) => one.revokedAt === null
      )
      assert.deepStrictEqual(
        left.map(({ grantId }: { grantId: string }) => grantId),
        [grants["admin"]]
      )

      // What is over for long is left to the audit log.
      yield* sql(
        `update agent_grant set revoked_at = now() - interval '31 days' where id = '${grants["owner"]}'`
      )
      yield* sql(
        `update agent_grant set expires_at = now() - interval '31 days' where id = '${grants["admin"]}'`
      )
      assert.deepStrictEqual(
        (yield* list(mine.owner)).body.map(({ grantId }: { grantId: string }) => grantId),
        [grants["member"]]
      )
    })
  )
})
