import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Access, credentialOf, digestOf, type Identity } from "#src/access/Access.ts"
import { newApiKey, newSessionToken } from "#src/access/bootstrap.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const Fixture = Access.layer.pipe(Layer.provideMerge(testDb()))

const makeKey = Effect.fn(function* (orgId: string, role: "admin" | "member") {
  const { engine: sql } = yield* Db
  const token = newApiKey()
  yield* sql`insert into api_key (org_id, id, name, key_prefix, digest, role)
    values (${orgId}, ${randomUUIDv7()}, 'k', 'svc_', ${digestOf(token)}, ${role})`
  return { kind: "key", digest: digestOf(token) } as const
})

const makeSession = Effect.fn(function* (orgId: string) {
  const { engine: sql } = yield* Db
  const [user, token] = [randomUUIDv7(), newSessionToken()]
  yield* sql`insert into account (id, email, name) values (${user}, ${`${user}@example.test`}, 'U')`
  yield* sql`insert into member (org_id, id, user_id, role) values (${orgId}, ${randomUUIDv7()}, ${user}, 'owner')`
  yield* sql`insert into session (id, digest, user_id, expires_at)
    values (${randomUUIDv7()}, ${digestOf(token)}, ${user}, now() + interval '1 day')`
  return { user, credential: { kind: "session", digest: digestOf(token) } as const }
})

layer(Fixture, { excludeTestServices: true })("access", (it) => {
  it.effect("a key opens its own organization only, by id and by slug, with the role it carries", () =>
    Effect.gen(function* () {
      const access = yield* Access
      const [mine, other] = [yield* makeOrganization(), yield* makeOrganization()]
      const key = yield* makeKey(mine.id, "member")
      for (const addressed of [mine.id, mine.id.toUpperCase(), mine.slug]) {
        const identity = Option.getOrThrow(yield* access.identify(key, addressed, "api"))
        assert.deepStrictEqual(
          [identity.organization?.id, identity.organization?.role],
          [mine.id, "member"],
          addressed
        )
      }
      for (const addressed of [other.id, other.slug, "", "nope", "' or true --"]) {
        const identity = Option.getOrThrow(yield* access.identify(key, addressed, "api"))
        assert.isNull(identity.organization, addressed)
      }
    })
  )

  it.effect("revoking a key, demoting and removing a member, and the end of a session count at once", () =>
    Effect.gen(function* () {
      const access = yield* Access
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const key = yield* makeKey(org.id, "admin")
      assert.isTrue(Option.isSome(yield* access.identify(key, org.slug, "api")))
      yield* sql`update api_key set revoked_at = now() where digest = ${key.digest}`
      assert.isTrue(Option.isNone(yield* access.identify(key, org.slug, "api")))

      const { user, credential } = yield* makeSession(org.id)
      const role = Effect.map(
        access.identify(credential, org.slug, "api"),
        Option.map((identity: Identity) => identity.organization?.role)
      )
      assert.deepStrictEqual(yield* role, Option.some("owner"))
      yield* sql`update member set role = 'member' where user_id = ${user}`
      assert.deepStrictEqual(yield* role, Option.some("member"))
      yield* sql`delete from member where user_id = ${user}`
      assert.deepStrictEqual(yield* role, Option.some(undefined))
      yield* sql`update session set expires_at = now() where user_id = ${user}`
      assert.isTrue(Option.isNone(yield* role))
    })
  )

  it.effect(
    "questions of one moment share a look, each with its own answer, and none is answered from before",
    () =>
      Effect.gen(function* () {
        const access = yield* Access
        const { engine: sql } = yield* Db
        const [mine, other] = [yield* makeOrganization(), yield* makeOrganization()]
        const keys = yield* Effect.forEach(Array.from({ length: 300 }), (_, i) =>
          makeKey(i % 2 === 0 ? mine.id : other.id, i % 3 === 0 ? "admin" : "member")
        )
        const ask = Effect.forEach(
          keys.flatMap(
            (key, i) =>
              [
                [key, mine.slug, i],
                [key, mine.slug, i],
                [key, other.id, i],
                [key, null, i]
              ] as const
          ),
          ([key, addressed, i]) =>
            Effect.map(access.identify(key, addressed, "api"), (identity) => ({ identity, addressed, i })),
          { concurrency: "unbounded" }
        )
        for (const { identity, addressed, i } of yield* ask) {
          const organization = Option.getOrThrow(identity).organization
          const own = i % 2 === 0 ? mine : other
          if (addressed === null || addressed === own.slug || addressed === own.id) {
            assert.deepStrictEqual(
              [organization?.id, organization?.role],
              [own.id, i % 3 === 0 ? "admin" : "member"]
            )
          } else assert.isNull(organization)
        }
        // While others ask all the time, a key that was revoked is out for every question after that.
        let stop = false
        const busy = yield* Effect.forkChild(Effect.repeat(ask, { until: () => stop }))
        for (const key of keys.slice(0, 20)) {
          yield* sql`update api_key set revoked_at = now() where digest = ${key.digest}`
          assert.isTrue(Option.isNone(yield* access.identify(key, null, "api")))
        }
        stop = true
        yield* Fiber.interrupt(busy)
      })
  )

  it.effect("the use of a credential is noted once a minute and prolongs a session", () =>
    Effect.gen(function* () {
      const access = yield* Access
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const { user, credential } = yield* makeSession(org.id)
      const read = Effect.map(
        sql<{
          readonly at: Date
          readonly days: number
        }>`select last_used_at as at, extract(day from expires_at - now())::int as days from session where user_id = ${user}`,
        (rows) => rows[0]!
      )
      const use = Effect.gen(function* () {
        yield* access.used("session", Option.getOrThrow(yield* access.identify(credential, org.slug, "api")))
      })
      const before = yield* read
      yield* use
      yield* sql`update session set last_used_at = now() - interval '2 minutes' where user_id = ${user}`
      yield* use
      const after = yield* eventually(
        "the use is noted",
        read,
        ({ at }) => at.getTime() >= before.at.getTime()
      )
      // Thirty days, less what has passed meanwhile.
      assert.isAtLeast(after.days, 29)
      yield* use
      assert.deepStrictEqual((yield* read).at, after.at)
    })
  )
})

layer(Layer.empty)("tokens", (it) => {
  it.effect("only what has the form of a token becomes a credential; the header wins over the cookie", () =>
    Effect.sync(() => {
      const [key, session] = [newApiKey(), newSessionToken()]
      assert.match(key, /^svc_[0-9a-f]{40}$/)
      const found = (authorization?: string, cookie?: string) =>
        Option.getOrUndefined(Option.map(credentialOf(authorization, cookie), ({ kind }) => kind))
      assert.strictEqual(found(`Bearer ${key}`), "key")
      assert.strictEqual(found(`bearer ${session}`), "session")
      assert.strictEqual(found(undefined, session), "session")
      for (const header of [
        "",
        key,
        `Basic ${key}`,
        `Bearer ${key}x`,
        `Bearer ${key.toUpperCase()}`,
        `Bearer  ${key}`
      ]) {
        assert.isUndefined(found(header, session), header)
      }
      // A key in a cookie would ride along with requests of other pages.
      assert.isUndefined(found(undefined, key))
    })
  )
})
