/** References that are written and what they name that is deleted, by whoever and at the same moment. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Reactivity from "effect/reactivity/Reactivity"
import { inject } from "vitest"
import type { Change } from "#src/store/change.ts"
import { Db, transaction } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { inUse, markedNow, refuseCircles, refuseMissing } from "#src/store/reference-checks.ts"
import { recordUnrecorded } from "#src/store/reference-rows.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const Store = Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

const start = Effect.gen(function* () {
  const resources = yield* Resources
  const org = yield* makeOrganization()
  const place = yield* makeProject(org.id, "shop")
  const create = (kind: string, name: string, spec: Record<string, unknown>) =>
    ({
      action: "create",
      uid: uuid(),
      kind,
      projectId: place.projectId,
      environment: "production",
      name,
      parentUid: place.production,
      spec: JSON.parse(JSON.stringify(spec)),
      managedBy: "api"
    }) as const
  const queue = (name: string, deadLetterQueue: string | null = null) =>
    create("Queue", name, { deadLetterQueue })
  const cron = (name: string, target: string) => create("Cron", name, publishing(target))
  const write = (...changes: ReadonlyArray<Change>) => resources.write(org.id, changes, actor)
  const remove = (change: { readonly uid: string }) => write({ action: "delete", uid: change.uid })
  const update = ({ uid }: { readonly uid: string }, spec: object) =>
    write({ action: "update", uid, spec: JSON.parse(JSON.stringify(spec)) })
  return { org, place, queue, cron, write, remove, update }
})
const publishing = (queue: string) => ({ schedule: "0 0 1 1 *", target: { kind: "queue", queue } })
const posting = { schedule: "0 0 1 1 *", target: { kind: "http", path: "/" } }

const refusal = <A>(self: Effect.Effect<A, { readonly _tag: string; readonly code?: string }>) =>
  Effect.map(Effect.result(self), (result) =>
    Result.isSuccess(result) ? "done" : (result.failure.code ?? result.failure._tag)
  )

layer(Store, { excludeTestServices: true })("references in the store", (it) => {
  it.effect("what is named has to be there when it is named, and the field is told", () =>
    Effect.gen(function* () {
      const { queue, cron, write, update } = yield* start
      const early = yield* Effect.flip(write(cron("posting", "letters")))
      assert.deepInclude(early, {
        code: "unknown_queue",
        faults: [
          { pointer: "/target/queue", message: 'names the queue "letters", which "production" does not have' }
        ]
      })
      const job = cron("posting", "letters")
      // In one write the order does not matter.
      yield* write(job, queue("letters", "dead"), queue("dead"))
      assert.strictEqual(yield* refusal(update(job, publishing("other"))), "unknown_queue")
      yield* update(job, posting)
    })
  )

  it.effect("what is named is not deleted, and users are told by address", () =>
    Effect.gen(function* () {
      const { place, queue, cron, write, remove, update } = yield* start
      const [letters, dead, job] = [queue("letters", "dead"), queue("dead"), cron("posting", "letters")]
      yield* write(letters, dead, job)
      const used = yield* Effect.flip(remove(letters))
      assert.deepInclude(used, { code: "in_use", addresses: ["shop/production/Cron/posting"] })
      assert.strictEqual(
        used.message,
        'The queue "letters" is named by shop/production/Cron/posting (/target/queue); change that first'
      )
      assert.deepInclude(yield* Effect.flip(remove(dead)), {
        code: "in_use",
        addresses: ["shop/production/Queue/letters"]
      })
      // Nothing was marked, and what no longer names it keeps nothing.
      yield* update(job, posting)
      yield* remove(letters)
      yield* remove(dead)
      // With its users, or with what contains them all, it goes at once.
      const [one, two] = [queue("one", "two"), queue("two")]
      yield* write(one, two, cron("other", "one"))
      yield* write({ action: "delete", uid: place.production })
    })
  )

  it.effect("what takes its name over in the same write is what is named from then on", () =>
    Effect.gen(function* () {
      const { queue, cron, write, remove } = yield* start
      const [letters, next] = [queue("letters"), queue("letters")]
      yield* write(letters, cron("posting", "letters"))
      yield* write({ action: "delete", uid: letters.uid }, next)
      assert.strictEqual(yield* refusal(remove(next)), "in_use")
    })
  )

  it.effect("circles are refused, however they come about", () =>
    Effect.gen(function* () {
      const { queue, write, update } = yield* start
      assert.strictEqual(yield* refusal(write(queue("self", "self"))), "reference_circle")
      assert.strictEqual(yield* refusal(write(queue("aa", "bb"), queue("bb", "aa"))), "reference_circle")
      const [one, two, three] = [queue("one", "two"), queue("two", "three"), queue("three")]
      yield* write(one, two, three)
      const closed = yield* Effect.flip(update(three, { deadLetterQueue: "one" }))
      assert.deepInclude(closed, {
        faults: [
          {
            pointer: "/deadLetterQueue",
            message: "leads back to this queue: references must not form a circle"
          }
        ]
      })
      // One that leads into a circle would not be part of it, and none is there.
      yield* write(queue("four", "one"))
    })
  )

  it.effect("of two that would close a circle together one is refused", () =>
    Effect.gen(function* () {
      const { queue, write, update } = yield* start
      const [left, right] = [queue("left"), queue("right")]
      yield* write(left, right)
      for (let round = 0; round < 3; round++) {
        const results = yield* Effect.all(
          [
            refusal(update(left, { deadLetterQueue: "right" })),
            refusal(update(right, { deadLetterQueue: "left" }))
          ],
          { concurrency: 2 }
        )
        assert.deepStrictEqual(results.toSorted(), ["done", "reference_circle"])
        yield* update(left, { deadLetterQueue: null })
        yield* update(right, { deadLetterQueue: null })
      }
    })
  )

  it.effect("what is named and deleted at once is one of the two", () =>
    Effect.gen(function* () {
      const { queue, cron, write, remove, update } = yield* start
      const job = cron("posting", "kept")
      yield* write(queue("kept"), job)
      const seen = new Set<string>()
      for (let round = 0; round < 40; round++) {
        const letters = queue("letters")
        yield* write(letters)
        const pair = [refusal(remove(letters)), refusal(update(job, publishing("letters")))]
        const results = yield* Effect.all(round % 2 === 0 ? pair : pair.toReversed(), { concurrency: 2 })
        assert.strictEqual(results.filter((result) => result === "done").length, 1, results.join(" "))
        for (const result of results) seen.add(result)
        yield* update(job, publishing("kept"))
        yield* refusal(remove(letters))
      }
      assert.includeMembers(["done", "in_use", "unknown_queue"], [...seen])
    })
  )

  it.effect("what the former release writes counts as soon as something depends on it", () =>
    Effect.gen(function* () {
      const { org, place, queue, write, remove } = yield* start
      const { engine: sql } = yield* Db
      const letters = queue("letters")
      yield* write(letters)
      const job = uuid()
      // It knows neither the table nor the column.
      yield* sql`insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
        values (${org.id}, ${job}, 'Cron', ${place.projectId}, 'production', 'old', ${place.production},
          ${sql.json(publishing("letters"))}, 'api')`
      assert.strictEqual(yield* refusal(remove(letters)), "in_use")
      yield* sql`update resource set spec = ${sql.json(posting)}, generation = generation + 1 where uid = ${job}`
      yield* remove(letters)
      const left = yield* sql`select from resource_reference where org_id = ${org.id}`
      assert.isEmpty(left)
    })
  )

  it.effect("in another organization nothing is named", () =>
    Effect.gen(function* () {
      const mine = yield* start
      const other = yield* start
      yield* other.write(other.queue("letters"))
      assert.strictEqual(yield* refusal(mine.write(mine.cron("posting", "letters"))), "unknown_queue")
    })
  )

  it.effect("users and what was not recorded are found by indexes among a hundred thousand", () =>
    Effect.gen(function* () {
      const { org, place, queue, write } = yield* start
      const { engine: sql } = yield* Db
      const named = queue("qc7")
      yield* write(named)
      yield* sql`insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by,
          references_generation)
        select ${org.id}, gen_random_uuid(), case when n % 2 = 0 then 'Cron' else 'Queue' end, ${place.projectId},
          'production', 'c' || n, ${place.production}, '{}', 'api', 1 from generate_series(1, 100000) n`
      yield* sql`insert into resource_reference
          (org_id, uid, path, kind, by_uid, target, project_id, environment, required, acyclic)
        select org_id, uid, '/deadLetterQueue', 'Queue', false, 'q' || name, project_id, environment, true, true
        from resource where org_id = ${org.id} and name like 'c%'`
      const [database] = yield* sql<{ readonly name: string }>`select current_database() as name`
      const url = new URL(inject("databaseUrl"))
      url.pathname = `/${database!.name}`
      const owner = yield* PgClient.makeClient({ url: Redacted.make(url.href) })
      yield* owner`analyze resource, resource_reference`
      const [changed] = yield* sql<{ readonly uid: string }>`
        select uid from resource where org_id = ${org.id} and name = 'c8'`
      // The counters of a connection hold what its earlier transactions have not passed on yet.
      const readInOrder = sql<{ readonly name: string; readonly rows: number }>`
        select relname as name, seq_tup_read::int as rows from pg_stat_xact_user_tables
        where relname in ('resource', 'resource_reference') order by 1`
      const [before, after] = yield* transaction(
        sql,
        Effect.gen(function* () {
          const before = yield* readInOrder
          yield* recordUnrecorded(sql, org.id)
          yield* sql`update resource set deletion_requested_at = now(), txid = pg_current_xact_id()
            where org_id = ${org.id} and uid = ${named.uid}`
          const used = yield* inUse(sql, org.id, markedNow(sql))
          assert.deepStrictEqual(used?.addresses, ["shop/production/Queue/c7"])
          yield* sql`update resource_reference set txid = pg_current_xact_id(), target = 'c9'
            where org_id = ${org.id} and uid = ${changed!.uid}`
          yield* refuseMissing(sql, org.id, [changed!.uid])
          yield* refuseCircles(sql, org.id, [changed!.uid])
          return [before, yield* readInOrder] as const
        })
      )
      assert.lengthOf(after, 2)
      assert.deepStrictEqual(after, before)
    }).pipe(Effect.provide(Reactivity.layer), Effect.scoped)
  )
})
