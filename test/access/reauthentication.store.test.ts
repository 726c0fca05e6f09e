import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

layer(testPlane(), { excludeTestServices: true })("a proof that is old", (it) => {
  it.effect("does not do for what only owners do, and does for everything else", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const token = mine.owner
      const org = `/v1/orgs/${mine.slug}`
      const session = `user_id = (select user_id from member where org_id = '${mine.id}' and role = 'owner')`
      yield* sql(
        `update session set method = 'password', authenticated_at = now() - interval '13 hours' where ${session}`
      )
      yield* call("POST", `${org}/projects`, { token, body: { name: "P", slug: "one" } })
      assert.strictEqual((yield* call("PATCH", org, { token, body: { name: "N" } })).status, 200)
      for (const path of [`${org}/projects/one`, org]) {
        const refused = yield* call("DELETE", path, { token })
        assert.deepStrictEqual([refused.status, refused.body.code], [403, "reauthentication_required"])
      }
      // Whether what the path names is there is told to nobody who may not do it.
      assert.strictEqual((yield* call("DELETE", `${org}/projects/nope`, { token })).status, 403)
      yield* sql(`update session set authenticated_at = now() - interval '11 hours' where ${session}`)
      assert.strictEqual((yield* call("DELETE", `${org}/projects/one`, { token })).status, 200)
      // A session that was made on the server has nothing to prove.
      yield* sql(
        `update session set method = null, authenticated_at = now() - interval '9 days' where ${session}`
      )
      assert.strictEqual((yield* call("DELETE", org, { token })).status, 200)
    })
  )
})
