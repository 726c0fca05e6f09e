import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { Members } from "#src/organizations/Members.ts"
import { Db, transaction } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const Fixture = Members.layer.pipe(Layer.provideMerge(testDb()))

const twoOwners = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const org = yield* makeOrganization()
  const people = Array.from({ length: 2 }, () => ({ user: randomUUIDv7(), id: randomUUIDv7() }))
  for (const { user, id } of people) {
    yield* sql`insert into account (id, email, name) values (${user}, ${`${user}@example.test`}, 'O')`
    yield* sql`insert into member (org_id, id, user_id, role) values (${org.id}, ${id}, ${user}, 'owner')`
  }
  const [one, two] = people
  return { orgId: org.id, one: one!, two: two! }
})

/** Runs `first` in a transaction that ends only when `second` waits for it. */
const overlapping = <A, B, E1, E2, R1, R2>(
  first: Effect.Effect<A, E1, R1>,
  second: Effect.Effect<B, E2, R2>
) =>
  Effect.gen(function* () {
    const { api, engine } = yield* Db
    const done = yield* Deferred.make<void>()
    const end = yield* Deferred.make<void>()
    const earlier = yield* Effect.forkChild(
      transaction(
        api,
        Effect.tap(first, () => Effect.andThen(Deferred.succeed(done, undefined), Deferred.await(end)))
      )
    )
    yield* Deferred.await(done)
    const later = yield* Effect.forkChild(second)
    const waiting = engine<{ readonly n: number }>`
      select count(distinct w.pid)::int as n from pg_locks w join pg_locks own on own.pid = w.pid
      where not w.granted and own.database = (select oid from pg_database where datname = current_database())`
    yield* eventually("the second waits for the first", waiting, ([row]) => (row?.n ?? 0) > 0)
    yield* Deferred.succeed(end, undefined)
    return [yield* Fiber.join(earlier), yield* Fiber.join(later)] as const
  })

layer(Fixture, { excludeTestServices: true })("the last owner", (it) => {
  it.effect("of two owners who leave at the same moment the second one stays", () =>
    Effect.gen(function* () {
      const members = yield* Members
      const { orgId, one, two } = yield* twoOwners
      const [first, second] = yield* overlapping(
        members.remove(orgId, one.id, one.user, actor),
        members.remove(orgId, two.id, two.user, actor)
      )
      assert.deepStrictEqual([first, second], [undefined, "last_owner"])
    })
  )

  it.effect("of two owners who step down at the same moment the second one stays", () =>
    Effect.gen(function* () {
      const members = yield* Members
      const { orgId, one, two } = yield* twoOwners
      const [first, second] = yield* overlapping(
        members.setRole(orgId, one.id, "member", one.user, actor),
        members.setRole(orgId, two.id, "admin", two.user, actor)
      )
      assert.strictEqual(typeof first, "object")
      assert.strictEqual(second, "last_owner")
    })
  )

  it.effect("an owner who is demoted just then demotes nobody any more", () =>
    Effect.gen(function* () {
      const members = yield* Members
      const { orgId, one, two } = yield* twoOwners
      const [first, second] = yield* overlapping(
        members.setRole(orgId, two.id, "admin", one.user, actor),
        members.setRole(orgId, one.id, "member", two.user, actor)
      )
      assert.strictEqual(typeof first, "object")
      assert.strictEqual(second, "owners_only")
    })
  )
})
