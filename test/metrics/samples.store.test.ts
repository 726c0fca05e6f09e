import { assert, layer } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { tidy } from "#src/loops/Housekeeping.ts"
import { MetricHistory } from "#src/metrics/MetricHistory.ts"
import { MetricSamples, type Sample, type Values } from "#src/metrics/MetricSamples.ts"
import { tables } from "#src/metrics/tables.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { TableRules } from "#src/store/table-rules.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

/** An organization with so many caches. */
const place = Effect.fn(function* (count = 1) {
  const { id: orgId } = yield* makeOrganization()
  const project = yield* makeProject(orgId, "shop")
  const resources = yield* Resources
  const changes = Array.from({ length: count }, (_, index) => cacheChange(project, `cache-${index}`))
  yield* resources.write(orgId, changes, actor)
  return { orgId, uids: changes.map(({ uid }) => uid), uid: changes[0]?.uid ?? "" }
})

const sampleOf = (orgId: string, uid: string, values: Values, at = new Date()): Sample => ({
  orgId,
  uid,
  source: "host",
  at,
  values
})

const now = (orgId: string) =>
  Effect.flatMap(
    Db,
    ({ engine: sql }) =>
      sql<{ readonly uid: string; readonly at: Date; readonly values: Values; readonly kept: boolean }>`
        select uid, at, values, kept from metric_now where org_id = ${orgId}::uuid order by uid, source`
  )
const samples = (orgId: string) =>
  Effect.flatMap(
    Db,
    ({ engine: sql }) =>
      sql<{ readonly uid: string; readonly at: Date; readonly values: Values }>`
        select uid, at, values from metric_sample where org_id = ${orgId}::uuid order by uid, at, source`
  )

layer(
  Layer.merge(MetricSamples.layer, MetricHistory.layer).pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env: { SVC_METRICS_RESOURCES: "3" } }))),
    Layer.provideMerge(Resources.layer),
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb()),
    Layer.merge(Layer.succeed(TableRules, tables))
  ),
  { excludeTestServices: true }
)("samples of measurements", (it) => {
  it.effect("are stored to three decimals, without what is no number, and of resources that there are", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const { orgId, uid } = yield* place()
      const nobody = yield* place()
      yield* record([
        sampleOf(orgId, uid, { "cpu.percent": 1 / 3, "memory.used_bytes": Number.NaN, "redis.hits": 0 }),
        sampleOf(orgId, uuid(), { "cpu.percent": 1 }),
        sampleOf(orgId, nobody.uid, { "cpu.percent": 1 })
      ])
      const values = { "cpu.percent": 0.333, "redis.hits": 0 }
      assert.deepStrictEqual(
        (yield* now(orgId)).map((row) => [row.uid, row.values, row.kept]),
        [[uid, values, true]]
      )
      assert.deepStrictEqual(
        (yield* samples(orgId)).map((row) => [row.uid, row.values]),
        [[uid, values]]
      )
      assert.lengthOf(yield* now(nobody.orgId), 0)
    })
  )

  it.effect("replace older ones only, are stored once, and never lie ahead", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const { orgId, uid } = yield* place()
      const at = Date.now() - 60_000
      const [older, newer] = [0, 15_000].map((ms) =>
        sampleOf(orgId, uid, { "cpu.percent": ms }, new Date(at + ms))
      ) as [Sample, Sample]
      yield* record([newer])
      yield* record([older, newer])
      yield* record([older])
      assert.deepStrictEqual(
        (yield* now(orgId)).map((row) => row.values),
        [{ "cpu.percent": 15_000 }]
      )
      assert.deepStrictEqual(
        (yield* samples(orgId)).map((row) => row.at.getTime() - at),
        [0, 15_000]
      )
      yield* record([sampleOf(orgId, uid, { "cpu.percent": 1 }, new Date(Date.now() + 3_600_000))])
      assert.isAtMost((yield* now(orgId))[0]?.at.getTime() ?? Number.NaN, Date.now() + 1_000)
    })
  )

  it.effect("take the place of what lies ahead since a clock was set back, which nobody takes for new", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const history = yield* MetricHistory
      const { engine: sql } = yield* Db
      const { orgId, uid } = yield* place()
      yield* record([sampleOf(orgId, uid, { "cpu.percent": 1 })])
      yield* sql`update metric_now set at = now() + interval '10 hours' where uid = ${uid}`
      const newest = Effect.map(history.newest(orgId, uid), ([row]) => row)
      assert.isAbove((yield* newest)?.ageSeconds ?? Number.NaN, 30_000)
      assert.lengthOf(yield* history.all(orgId, 1), 0)
      yield* record([sampleOf(orgId, uid, { "cpu.percent": 2 })])
      assert.deepStrictEqual((yield* newest)?.values, { "cpu.percent": 2 })
      assert.isBelow((yield* newest)?.ageSeconds ?? Number.NaN, 90)
      assert.lengthOf(yield* history.all(orgId, 1), 1)
    })
  )

  it.effect(
    "of what is not measured any more take no place from others, and get theirs back if one is free",
    () =>
      Effect.gen(function* () {
        const { record } = yield* MetricSamples
        const history = yield* MetricHistory
        const { engine: sql } = yield* Db
        const { orgId, uids } = yield* place(6)
        const look = (of: ReadonlyArray<string>) =>
          record(of.map((uid) => sampleOf(orgId, uid, { "cpu.percent": 1 })))
        const kept = (of: ReadonlyArray<string>) =>
          Effect.map(now(orgId), (rows) =>
            rows.filter((row) => row.kept && of.includes(row.uid)).map(({ uid }) => uid)
          )
        const sorted = uids.toSorted()
        const [ended, running] = [sorted.slice(3), sorted.slice(0, 3)]
        yield* look(ended)
        yield* sql`update metric_now set at = now() - interval '6 minutes' where org_id = ${orgId}`
        yield* look(running.slice(0, 2))
        assert.lengthOf(yield* kept(running), 2)
        assert.sameMembers(
          (yield* history.all(orgId, 2)).map(({ uid }) => uid),
          running.slice(0, 2)
        )
        // One place is left.
        yield* look([...running, ...ended.slice(0, 1)])
        assert.sameMembers(yield* kept([...running, ...ended.slice(0, 1)]), [
          ...running.slice(0, 2),
          ...ended.slice(0, 1)
        ])
      })
  )

  it.effect("of two sources of one resource stand side by side", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const { orgId, uid } = yield* place()
      const one = sampleOf(orgId, uid, { "cpu.percent": 1 })
      yield* record([one, { ...one, source: "store", values: { "database.unavailable": 0 } }])
      assert.deepStrictEqual(
        (yield* now(orgId)).map((row) => row.values),
        [{ "cpu.percent": 1 }, { "database.unavailable": 0 }]
      )
    })
  )

  it.effect("are kept of so many resources of an organization; all have their newest", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const { engine: sql } = yield* Db
      const { orgId, uids } = yield* place(5)
      const look = (of: ReadonlyArray<string>) =>
        record(of.map((uid) => sampleOf(orgId, uid, { "cpu.percent": 1 })))
      yield* look(uids.slice(0, 2))
      yield* look(uids)
      yield* look(uids)
      assert.lengthOf(yield* now(orgId), 5)
      const kept = (yield* now(orgId)).filter((row) => row.kept)
      assert.lengthOf(kept, 3)
      assert.includeMembers(
        kept.map((row) => row.uid),
        uids.slice(0, 2)
      )
      assert.sameMembers(
        [...new Set((yield* samples(orgId)).map((row) => row.uid))],
        kept.map((row) => row.uid)
      )
      // What goes makes room for another.
      yield* sql`update resource set deleted_at = now() where org_id = ${orgId} and uid = ${uids[0]}`
      yield* sql`update metric_now set at = now() - interval '6 minutes' where uid = ${uids[0]}`
      yield* tidy
      yield* look(uids)
      assert.lengthOf(
        (yield* now(orgId)).filter((row) => row.kept),
        3
      )
      assert.lengthOf(yield* now(orgId), 4)
    })
  )

  it.effect("two looks at once at the same resources both end", () =>
    Effect.gen(function* () {
      const { record } = yield* MetricSamples
      const { orgId, uids } = yield* place(3)
      const look = (of: ReadonlyArray<string>) =>
        record(of.map((uid) => sampleOf(orgId, uid, { "cpu.percent": 1 })))
      yield* Effect.all(
        Array.from({ length: 10 }, (_, index) => look(index % 2 === 0 ? uids : uids.toReversed())),
        { concurrency: "unbounded" }
      )
      assert.lengthOf(yield* now(orgId), 3)
    })
  )
})
