import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { AuditPage } from "#src/organizations/api/audit.ts"
import { fits } from "#test/setup/answers.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

interface Entry {
  readonly id: string
  readonly operation: string
  readonly principal: string
  readonly credential: string
  readonly address: string | null
  readonly outcome: number
  readonly resource: string | null
  readonly requestId: string
}

layer(testPlane(), { excludeTestServices: true })("the audit log", (it) => {
  it.effect("tells admins every write and every refusal: who, with what, what for, and how it ended", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant()
      const org = `/v1/orgs/${mine.slug}`
      const trace = { "x-request-id": "audited-request-1" }
      const key = yield* call("POST", `${org}/api-keys`, {
        token: mine.owner,
        body: { name: "k" },
        headers: trace
      })
      const invited = yield* call("POST", `${org}/invitations`, {
        token: mine.owner,
        body: { email: "guest@example.test", role: "member" }
      })
      yield* call("PATCH", org, { token: mine.owner, body: { name: "New" } })
      yield* call("DELETE", `${org}/api-keys/${key.body.id}`, { token: mine.member })
      yield* call("DELETE", `${org}/invitations/${invited.body.id}`, { token: mine.owner })
      yield* call("POST", `${org}/projects`, { token: mine.adminKey, body: { name: "P", slug: "one" } })
      // Refusals are written a moment later.
      const page = yield* eventually(
        "the refusal is written",
        call("GET", `${org}/audit`, { token: mine.admin }),
        ({ body }): boolean => body.items.some(({ outcome }: Entry) => outcome === 403)
      )
      yield* fits(AuditPage, page.body)
      const items: ReadonlyArray<Entry> = page.body.items
      const found = (operation: string) => items.find((item) => item.operation === operation)
      assert.deepInclude(found("apikeys.create"), {
        outcome: 201,
        credential: "session",
        resource: key.body.id,
        requestId: "audited-request-1",
        address: "127.0.0.1"
      })
      assert.deepInclude(found("apikeys.revoke"), { outcome: 403, resource: key.body.id })
      assert.deepInclude(found("orgs.createInvitation"), { outcome: 201, resource: invited.body.id })
      assert.deepInclude(found("orgs.revokeInvitation"), { outcome: 200, resource: invited.body.id })
      assert.deepInclude(found("orgs.update"), { outcome: 200, resource: mine.id })
      assert.deepInclude(found("projects.create"), { outcome: 201, credential: "key" })
      assert.match(found("projects.create")?.principal ?? "", /^key:/)
      assert.notInclude(page.text, key.body.key)
      const ids = items.map(({ id }) => BigInt(id))
      assert.deepStrictEqual(
        ids,
        [...ids].sort((a, b) => (a < b ? 1 : -1))
      )
    })
  )

  it.effect("is read page by page, filtered, by admins of the organization only", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      const mine = yield* tenant()
      const other = yield* tenant()
      const path = `/v1/orgs/${mine.slug}/audit`
      for (let i = 0; i < 7; i++)
        yield* call("PATCH", `/v1/orgs/${mine.slug}`, { token: mine.owner, body: { name: `N${i}` } })
      const at = { token: mine.adminKey }
      const seen: Array<string> = []
      let cursor: string | null = ""
      while (cursor !== null) {
        const more: string = cursor === "" ? "" : `&cursor=${cursor}`
        const page: Answer = yield* call("GET", `${path}?operation=orgs.update&limit=3${more}`, at)
        assert.isAtMost(page.body.items.length, 3)
        seen.push(...page.body.items.map(({ id }: Entry) => id))
        cursor = page.body.nextCursor
      }
      assert.deepStrictEqual([seen.length, new Set(seen).size], [7, 7])
      assert.strictEqual((yield* call("GET", `${path}?resource=${mine.id}`, at)).body.items.length, 7)
      assert.strictEqual((yield* call("GET", `${path}?principal=key:nobody`, at)).body.items.length, 0)
      assert.strictEqual((yield* call("GET", `${path}?limit=101`, at)).status, 422)
      assert.strictEqual((yield* call("GET", `${path}?cursor=forged`, at)).status, 422)
      assert.strictEqual((yield* call("GET", path, { token: mine.member })).status, 403)
      assert.strictEqual((yield* call("GET", path, { token: other.owner })).status, 404)
      const page = yield* call("GET", `${path}?limit=1`, at)
      const elsewhere = `/v1/orgs/${other.slug}/audit?cursor=${page.body.nextCursor}`
      assert.strictEqual((yield* call("GET", elsewhere, { token: other.owner })).status, 422)
    })
  )
})
