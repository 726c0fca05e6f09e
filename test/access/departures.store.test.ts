import { randomUUIDv7 } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { tableRules } from "#src/features.ts"
import { round } from "#src/organizations/OrganizationFinalizer.ts"
import { Organizations } from "#src/organizations/Organizations.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const Fixture = Organizations.layer.pipe(Layer.provideMerge(Layer.mergeAll(testDb(), tableRules)))

const fill = Effect.fn(function* (orgId: string, resources: number) {
  const { engine: sql } = yield* Db
  yield* sql`
    with made as (
      insert into resource (org_id, uid, kind, name, spec, managed_by)
      select ${orgId}, gen_random_uuid(), 'Project', 'project-' || i, '{}', 'api'
      from generate_series(1, ${resources}::int) i returning org_id, uid, kind
    ), told as (
      insert into resource_event (org_id, uid, type, reason, message) select org_id, uid, 'Normal', 'Created', 'C' from made
    )
    insert into work (org_id, uid, kind) select org_id, uid, kind from made`
})
const count = (orgId: string, condition: "live" | "asked") =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const [row] = yield* sql<{ readonly live: number; readonly asked: number }>`
      select count(*)::int as live, count(deletion_requested_at)::int as asked
      from resource where org_id = ${orgId} and deleted_at is null`
    return row?.[condition]
  })

layer(Fixture, { excludeTestServices: true })("departures", (it) => {
  it.effect("organizations that wait for the engine keep no other from going", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      // More than a round takes, all older: everything in them is asked to go, and stays.
      const stuck = yield* Effect.forEach(Array.from({ length: 101 }), () => makeOrganization())
      for (const { id } of stuck) yield* fill(id, 1)
      const ids = stuck.map(({ id }) => id)
      yield* sql`update resource set deletion_requested_at = now() where org_id = any(${ids}::uuid[])`
      yield* sql`update organization set deletion_requested_at = now() - interval '1 hour' where id = any(${ids}::uuid[])`
      const last = yield* makeOrganization()
      // What requests added at the moment at which the resource went.
      yield* sql`insert into queue_backlog values (${last.id}, ${randomUUIDv7()}, 0, 1, 1)`
      yield* sql`update organization set deletion_requested_at = now() where id = ${last.id}`
      assert.strictEqual(yield* round, 102)
      assert.lengthOf(yield* sql`select from organization where id = ${last.id}`, 0)
      assert.lengthOf(yield* sql`select from queue_backlog where org_id = ${last.id}`, 0)
      yield* sql`update resource set deleted_at = now() where org_id = any(${ids}::uuid[])`
      while ((yield* round) > 0) yield* Effect.yieldNow
      assert.lengthOf(yield* sql`select from organization where id = any(${ids}::uuid[])`, 0)
    })
  )

  it.effect("what is added while an organization is cleared keeps all that the engine removes it with", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { id } = yield* makeOrganization()
      yield* sql`insert into queue_backlog values (${id}, ${randomUUIDv7()}, 0, 1, 1)`
      yield* sql`update organization set deletion_requested_at = now() where id = ${id}`
      // Clearing has begun, and comes to the queue entries last.
      const [held, added] = [yield* Deferred.make<number>(), yield* Deferred.make<void>()]
      const holder = yield* sql<{ readonly pid: number }>`
        select pg_backend_pid() as pid from queue_backlog where org_id = ${id} for update`.pipe(
        Effect.tap(([row]) => Deferred.succeed(held, row!.pid)),
        Effect.andThen(Deferred.await(added)),
        sql.withTransaction,
        Effect.forkChild
      )
      const pid = yield* Deferred.await(held)
      const clearing = yield* Effect.forkChild(round)
      yield* eventually(
        "it has begun to clear",
        sql`select from pg_stat_activity where ${pid}::int = any (pg_blocking_pids(pid))`,
        (waiting) => waiting.length > 0
      )
      yield* fill(id, 1)
      yield* sql`insert into secret (org_id, uid, field, key_id, sealed)
        select org_id, uid, 'password', 'none', '' from resource where org_id = ${id}`
      yield* Deferred.succeed(added, undefined)
      yield* Fiber.join(holder)
      yield* Fiber.join(clearing)
      const kept = (table: string) => sql`select from ${sql(table)} where org_id = ${id}`
      for (const table of ["work", "secret", "resource_event"]) assert.lengthOf(yield* kept(table), 1, table)
      yield* round
      assert.strictEqual(yield* count(id, "asked"), 1)
      yield* sql`update resource set deleted_at = now() where org_id = ${id}`
      yield* round
      for (const table of ["work", "secret", "resource", "resource_event"])
        assert.lengthOf(yield* kept(table), 0, table)
      assert.lengthOf(yield* sql`select from organization where id = ${id}`, 0)
    })
  )

  it.effect(
    "a large organization goes in steps of bounded size, and waits for what the engine has not removed",
    () =>
      Effect.gen(function* () {
        const organizations = yield* Organizations
        const { engine: sql } = yield* Db
        const [leaving, staying] = [yield* makeOrganization(), yield* makeOrganization()]
        const user = randomUUIDv7()
        yield* sql`insert into account (id, email, name) values (${user}, ${`${user}@example.test`}, 'O')`
        for (const { id } of [leaving, staying]) {
          yield* sql`insert into member (org_id, id, user_id, role) values (${id}, ${randomUUIDv7()}, ${user}, 'owner')`
        }
        yield* fill(leaving.id, 12_000)
        yield* fill(staying.id, 10)

        const done = yield* organizations.remove(leaving.id, { userId: user }, actor)
        assert.strictEqual(done._tag, "Deleted")
        assert.strictEqual(yield* count(leaving.id, "asked"), 5_000)
        assert.deepStrictEqual(
          (yield* organizations.ofUser(user)).map(({ id }) => id),
          [staying.id]
        )
        assert.strictEqual((yield* organizations.remove(leaving.id, { userId: user }, actor))._tag, "Missing")

        assert.strictEqual(yield* round, 1)
        assert.strictEqual(yield* count(leaving.id, "asked"), 12_000)
        // All but one are gone: the organization still waits.
        yield* sql`update resource set deleted_at = now() where org_id = ${leaving.id} and name <> 'project-7'`
        yield* sql`delete from work where org_id = ${leaving.id}`
        assert.strictEqual(yield* round, 1)
        assert.strictEqual(yield* count(leaving.id, "live"), 1)
        yield* sql`update resource set deleted_at = now() where org_id = ${leaving.id}`
        // Several processes may clear the same one.
        yield* Effect.all([round, round, round], { concurrency: "unbounded" })
        assert.strictEqual(yield* round, 0)
        for (const table of ["organization_slug", "resource", "resource_event", "work", "member", "secret"]) {
          const rows = yield* sql`select from ${sql(table)} where org_id = ${leaving.id}`
          assert.strictEqual(rows.length, 0, table)
        }
        assert.strictEqual(yield* count(staying.id, "live"), 10)
        assert.strictEqual(yield* count(staying.id, "asked"), 0)
      })
  )
})
