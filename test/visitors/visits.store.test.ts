import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Db } from "#src/store/Db.ts"
import { Visits } from "#src/visitors/Visits.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { challenge, makePerson, makeSite, state, world } from "./world.ts"

type Person = Effect.Success<ReturnType<typeof makePerson>>
type Site = Effect.Success<ReturnType<typeof makeSite>>

layer(world, { excludeTestServices: true })("visits", (it) => {
  const way = (host: string) => ({ host, challenge, returnPath: "/cart?step=2" })
  const codeFor = Effect.fnUntraced(function* (person: Person, { host }: Site) {
    const code = yield* (yield* Visits).issueCode(person, way(host))
    return Redacted.value(Option.getOrThrow(code))
  })
  const redeem = Effect.fnUntraced(function* (code: string, host: string, by = state) {
    return yield* (yield* Visits).redeem(code, { host, state: by })
  })
  /** Lets the person in and answers the cookie. */
  const letIn = Effect.fnUntraced(function* (person: Person, site: Site) {
    const redeemed = Option.getOrThrow(yield* redeem(yield* codeFor(person, site), site.host))
    return Redacted.value(redeemed.cookie)
  })
  const holds = Effect.fnUntraced(function* (cookie: string, host: string) {
    return Option.isSome(yield* (yield* Visits).find(cookie, host))
  })
  const refused = (result: Option.Option<unknown>) => assert.isTrue(Option.isNone(result))

  it.effect("a code lets a browser in once, to where it set out for", () =>
    Effect.gen(function* () {
      const visits = yield* Visits
      const site = yield* makeSite("authenticated")
      const person = yield* makePerson()
      const code = yield* codeFor(person, site)
      const { visit, cookie, returnPath } = Option.getOrThrow(yield* redeem(code, site.host))
      assert.strictEqual(returnPath, "/cart?step=2")
      const { userId, email } = person
      const expected = { orgId: site.orgId, environmentUid: site.environmentUid, userId, email }
      assert.deepStrictEqual(visit, expected)
      assert.deepStrictEqual(
        Option.getOrThrow(yield* visits.find(Redacted.value(cookie), site.host)),
        expected
      )
      refused(yield* redeem(code, site.host))
    })
  )

  it.effect("of many who send one code at once, one is let in", () =>
    Effect.gen(function* () {
      const site = yield* makeSite("authenticated")
      const code = yield* codeFor(yield* makePerson(), site)
      const tries = yield* Effect.all(
        Array.from({ length: 10 }, () => redeem(code, site.host)),
        { concurrency: 10 }
      )
      assert.strictEqual(tries.filter(Option.isSome).length, 1)
    })
  )

  it.effect("a code is for one host, one browser and one minute, and is gone when it was tried", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* makeSite("authenticated")
      const other = yield* makeSite("authenticated")
      const person = yield* makePerson()
      const elsewhere = yield* codeFor(person, site)
      refused(yield* redeem(elsewhere, other.host))
      refused(yield* redeem(elsewhere, site.host))
      // Somebody made this browser come with a code of theirs.
      const foreign = yield* codeFor(person, site)
      refused(yield* redeem(foreign, site.host, "6".repeat(64)))
      refused(yield* redeem(foreign, site.host))
      const unbound = yield* codeFor(person, site)
      refused(yield* redeem(unbound, site.host, ""))
      const old = yield* codeFor(person, site)
      yield* sql`update visit_code set expires_at = expires_at - interval '60 seconds'`
      refused(yield* redeem(old, site.host))
      for (const nonsense of ["", "svcv_", `svcv_${"0".repeat(64)}`, "' or 1=1"])
        refused(yield* redeem(nonsense, site.host))
    })
  )

  it.effect("codes and cookies are in the store as digests", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* makeSite("authenticated")
      const person = yield* makePerson()
      const [code, cookie] = [yield* codeFor(person, site), yield* letIn(person, site)]
      const [row] = yield* sql<{ readonly all: string }>`
        select (select jsonb_agg(c) from visit_code c)::text || (select jsonb_agg(v) from visit v)::text
          || encode((select string_agg(c.digest || c.challenge, '') from visit_code c), 'escape') as all`
      const secrets = [code, code.slice("svcv_".length), cookie, state]
      for (const secret of secrets) {
        assert.notInclude(row?.all, secret)
        assert.notInclude(row?.all, Buffer.from(secret).toString("hex"))
      }
    })
  )

  it.effect("each mode is open to those that it says", () =>
    Effect.gen(function* () {
      const visits = yield* Visits
      const org = yield* makeOrganization()
      const member = yield* makePerson(org.id)
      const stranger = yield* makePerson()
      const invited = yield* makePerson(undefined, "Ada.Lovelace@Example.test")
      const table = [
        ["authenticated", true, true, true],
        ["organization", true, false, false],
        ["invite_only", false, false, true]
      ] as const
      for (const [mode, ...expected] of table) {
        const site = yield* makeSite(mode, org)
        yield* site.invite("ada.lovelace@example.test")
        for (const [index, person] of [member, stranger, invited].entries()) {
          const about = `${mode} ${index}`
          const there = Option.getOrThrow(yield* visits.destination(site.host, person.userId))
          assert.deepStrictEqual([there.access, there.member], [mode, index === 0], about)
          assert.strictEqual(there.allowed, expected[index], about)
          const code = yield* visits.issueCode(person, way(site.host))
          assert.strictEqual(Option.isSome(code), expected[index], about)
        }
        const unknown = Option.getOrThrow(yield* visits.destination(site.host, null))
        assert.deepStrictEqual([unknown.allowed, unknown.member], [false, false])
      }
      refused(yield* visits.destination("unknown.apps.localhost", member.userId))
      for (const host of [
        "",
        "localhost",
        "UPPER.test",
        "a b.test",
        "a.test:8443",
        "a.test/x",
        "x".repeat(300)
      ])
        refused(yield* visits.destination(host, member.userId))
    })
  )

  it.effect("a visit ends with what it stands on", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const sites = yield* EdgeSites
      const ends: ReadonlyArray<
        readonly [string, (site: Site, person: Person) => Effect.Effect<unknown, unknown>]
      > = [
        ["membership", (_, { userId }) => sql`delete from member where user_id = ${userId}`],
        ["signing out", (_, { id }) => sql`delete from session where id = ${id}`],
        ["the session's end", (_, { id }) => sql`update session set expires_at = now() where id = ${id}`],
        [
          "a stricter mode",
          ({ orgId, environmentUid }) => sites.setAccess({ orgId, environmentUid }, "invite_only")
        ],
        ["the host", ({ host }) => sql`delete from edge_host where hostname = ${host}`],
        [
          "its day",
          ({ host }) =>
            sql`update visit set expires_at = expires_at - interval '24 hours' where hostname = ${host}`
        ],
        ["the account", (_, { userId }) => sql`delete from account where id = ${userId}`]
      ]
      for (const [what, end] of ends) {
        const org = yield* makeOrganization()
        const site = yield* makeSite("organization", org)
        const person = yield* makePerson(org.id)
        const cookie = yield* letIn(person, site)
        const code = yield* codeFor(person, site)
        assert.isTrue(yield* holds(cookie, site.host), what)
        yield* end(site, person)
        assert.isFalse(yield* holds(cookie, site.host), what)
        if (what !== "its day") refused(yield* redeem(code, site.host))
      }
    })
  )

  it.effect("a withdrawn invitation ends visits", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* makeSite("invite_only")
      const person = yield* makePerson()
      yield* site.invite(person.email)
      const cookie = yield* letIn(person, site)
      yield* sql`delete from access_invitation where email = ${person.email}`
      assert.isFalse(yield* holds(cookie, site.host))
    })
  )

  it.effect("a cookie is for one host, and the next one of the same session takes its place", () =>
    Effect.gen(function* () {
      const [site, other] = [yield* makeSite("authenticated"), yield* makeSite("authenticated")]
      const person = yield* makePerson()
      const first = yield* letIn(person, site)
      assert.isFalse(yield* holds(first, other.host))
      const second = yield* letIn(person, site)
      assert.isFalse(yield* holds(first, site.host))
      assert.isTrue(yield* holds(second, site.host))
      assert.isFalse(yield* holds("' or 1=1", site.host))
    })
  )

  it.effect("of one session so many codes wait at most", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* makeSite("authenticated")
      const person = yield* makePerson()
      for (let i = 0; i < 25; i++) yield* codeFor(person, site)
      const rows = yield* sql`select from visit_code where session_id = ${person.id}`
      assert.strictEqual(rows.length, 20)
    })
  )
})
