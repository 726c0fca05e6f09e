import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { InvitationList, InvitationView } from "#src/organizations/api/invitations.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { enrol, knownToken, person } from "#test/setup/people.ts"
import { bucketsStandStill } from "#test/setup/rate-limits.ts"

const setUp = Effect.gen(function* () {
  const { call, tenant } = yield* Plane
  const mine = yield* tenant()
  const path = `/v1/orgs/${mine.slug}/invitations`
  const invite = (email: string, role = "member", token = mine.admin) =>
    call("POST", path, { token, body: { email, role } })
  const accept = (invitationToken: string, token: string | null) =>
    Effect.map(call("POST", `/v1/invitations/${invitationToken}/accept`, { token }), (answer) => ({
      ...answer,
      said: [answer.status, answer.body.code]
    }))
  return { mine, path, invite, accept }
})

layer(testPlane(), { excludeTestServices: true })("invitations", (it) => {
  it.effect("somebody is invited by mail and joins, once", () =>
    Effect.gen(function* () {
      const { call, sql, dataDir } = yield* Plane
      const { mine, path, invite, accept } = yield* setUp
      const guest = yield* person()
      // The address as somebody may type it.
      const made = yield* invite(guest.email.toUpperCase(), "admin")
      assert.strictEqual(made.status, 201)
      yield* fits(InvitationView, made.body)
      assert.deepStrictEqual(
        [made.body.email, made.body.role, made.body.status],
        [guest.email, "admin", "pending"]
      )
      const days = (Date.parse(made.body.expiresAt) - Date.now()) / 86_400_000
      assert.approximately(days, 7, 0.1)
      const listed = yield* call("GET", path, { token: mine.member })
      yield* fits(InvitationList, listed.body)
      assert.deepStrictEqual(listed.body, [made.body])

      const [mail] = yield* sql(
        `select recipient, template, state from mail_outbox where org_id = '${mine.id}'`
      )
      assert.deepStrictEqual([mail?.["recipient"], mail?.["template"]], [guest.email, "invitation"])
      assert.isString(dataDir)

      const token = yield* knownToken(made.body.id)
      const joined = yield* accept(token, guest.token)
      assert.strictEqual(joined.status, 200)
      assert.deepStrictEqual(joined.body, {
        organization: { id: mine.id, name: mine.slug, slug: mine.slug },
        role: "admin"
      })
      const member = yield* call("GET", `/v1/orgs/${mine.slug}`, { token: guest.token })
      assert.strictEqual(member.status, 200)
      assert.deepStrictEqual((yield* accept(token, guest.token)).said, [409, "invitation_used"])
      assert.deepStrictEqual((yield* call("GET", path, { token: mine.member })).body, [])
      const taken = yield* call("DELETE", `${path}/${made.body.id}`, { token: mine.admin })
      assert.deepStrictEqual([taken.status, taken.body.code], [409, "invitation_used"])
      const again = yield* invite(guest.email)
      assert.deepStrictEqual([again.status, again.body.code], [409, "already_member"])
      const audited = yield* sql(
        `select operation, resource, principal from audit_log where org_id = '${mine.id}' order by id`
      )
      assert.includeDeepMembers(audited as Array<unknown>, [
        { operation: "invitations.accept", resource: made.body.id, principal: `user:${guest.userId}` }
      ])
    })
  )

  it.effect(
    "an invitation opens for its address only, and neither expired, revoked nor unknown ones do",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const { mine, path, invite, accept } = yield* setUp
        const [guest, stranger] = [yield* person(), yield* person()]
        const made = yield* invite(guest.email)
        const token = yield* knownToken(made.body.id)
        assert.deepStrictEqual((yield* accept(token, null)).said, [401, "unauthenticated"])
        assert.deepStrictEqual((yield* accept(token, mine.adminKey)).said, [403, "forbidden"])
        assert.deepStrictEqual((yield* accept(token, stranger.token)).said, [403, "other_address"])
        for (const unknown of ["nope", `svci_${"0".repeat(64)}`, "' or 1=1 --"])
          assert.deepStrictEqual((yield* accept(encodeURIComponent(unknown), guest.token)).said, [
            404,
            "not_found"
          ])
        yield* sql(`update invitation set expires_at = now() where id = '${made.body.id}'`)
        assert.deepStrictEqual((yield* accept(token, guest.token)).said, [409, "invitation_expired"])
        assert.deepStrictEqual((yield* call("GET", path, { token: mine.member })).body, [])

        // Inviting again renews it: the old token opens nothing.
        const renewed = yield* invite(guest.email, "admin")
        assert.deepStrictEqual([renewed.status, renewed.body.id], [201, made.body.id])
        assert.deepStrictEqual((yield* accept(token, guest.token)).said, [404, "not_found"])
        const fresh = yield* knownToken(made.body.id)
        const revoke = call("DELETE", `${path}/${made.body.id}`, { token: mine.admin })
        assert.strictEqual((yield* revoke).status, 200)
        assert.strictEqual((yield* revoke).status, 200)
        assert.deepStrictEqual((yield* accept(fresh, guest.token)).said, [409, "invitation_revoked"])
        assert.strictEqual((yield* call("GET", `/v1/orgs/${mine.slug}`, { token: guest.token })).status, 404)

        const late = yield* invite(guest.email)
        const lateToken = yield* knownToken(late.body.id)
        yield* enrol(mine.id, guest.userId, "member")
        assert.deepStrictEqual((yield* accept(lateToken, guest.token)).said, [409, "already_member"])
      })
  )

  it.effect("only admins invite, nobody invites an owner, and an address must be one", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const { mine, path, invite } = yield* setUp
      assert.strictEqual((yield* invite("a@example.test", "member", mine.member)).status, 403)
      assert.strictEqual((yield* invite("a@example.test", "member", mine.adminKey)).status, 403)
      assert.strictEqual((yield* call("GET", path, { token: mine.adminKey })).status, 403)
      const other = yield* tenant()
      assert.strictEqual((yield* invite("a@example.test", "member", other.owner)).status, 404)
      const owner = yield* invite("a@example.test", "owner", mine.owner)
      assert.deepStrictEqual([owner.status, owner.body.errors[0].pointer], [422, "/role"])
      for (const email of [
        "",
        "a",
        "@b.c",
        "a@b",
        "a b@example.test",
        "a@example.test, b@example.test",
        "<a@example.test>",
        "a@example.test\r\nBcc: b@example.test",
        "a@-example.test",
        `${"a".repeat(65)}@example.test`
      ]) {
        const refused = yield* invite(email)
        assert.deepStrictEqual([refused.status, refused.body.errors?.[0].pointer], [422, "/email"], email)
      }
      for (const email of ["a.b+c@example.test", "ü@münchen.example", "o'neil@example.co.uk"])
        assert.strictEqual((yield* invite(email)).status, 201, email)
      assert.strictEqual(
        (yield* call("DELETE", `${path}/00000000-0000-7000-8000-000000000000`, { token: mine.admin })).status,
        404
      )
      const mails = yield* sql(`select count(*)::int as n from mail_outbox where org_id = '${mine.id}'`)
      assert.strictEqual(mails[0]?.["n"], 3)
    })
  )

  it.effect("an invitation that is accepted many times at once is accepted once", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const { mine, invite, accept } = yield* setUp
      for (let round = 0; round < 5; round++) {
        const guest = yield* person()
        const made = yield* invite(guest.email)
        const token = yield* knownToken(made.body.id)
        const answers = yield* Effect.forEach(Array.from({ length: 8 }), () => accept(token, guest.token), {
          concurrency: "unbounded"
        })
        assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [200, ...Array(7).fill(409)])
        const members = yield* sql(
          `select count(*)::int as n from member where org_id = '${mine.id}' and user_id = '${guest.userId}'`
        )
        assert.strictEqual(members[0]?.["n"], 1)
      }
    })
  )

  it.effect("an organization that invites without end is slowed down", () =>
    Effect.gen(function* () {
      const { invite } = yield* setUp
      yield* bucketsStandStill
      const answers = yield* Effect.forEach(
        Array.from({ length: 45 }, (_, i) => `p${i}@example.test`),
        (email) => invite(email),
        { concurrency: 8 }
      )
      const refused = answers.find(({ status }) => status === 429)
      assert.strictEqual(refused?.body.code, "rate_limited")
      assert.isAtLeast(Number(refused?.headers.get("retry-after")), 1)
      assert.strictEqual(refused?.headers.get("ratelimit-policy"), '"invitations";q=30;w=60')
      assert.strictEqual(answers.filter(({ status }) => status === 201).length, 30)
    })
  )
})
