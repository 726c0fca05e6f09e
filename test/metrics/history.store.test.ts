import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { MetricHistory } from "#src/metrics/MetricHistory.ts"
import { MetricSamples, type Values } from "#src/metrics/MetricSamples.ts"
import { pack } from "#src/metrics/pack.ts"
import { windowOf } from "#src/metrics/tiers.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const second = 1_000
const hour = 3_600 * second
/** The beginning of a day: the next two of them are over, at whatever hour this runs. */
const begin = Math.floor(Date.now() / (24 * hour) - 2) * 24 * hour

const place = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { record } = yield* MetricSamples
  const history = yield* MetricHistory
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const change = cacheChange(yield* makeProject(orgId, "shop"), "sessions")
  yield* resources.write(orgId, [change], actor)
  const { uid } = change
  const at = (ms: number, values: Values) =>
    ({ orgId, uid, source: "host", at: new Date(begin + ms), values }) as const
  /** By the beginning of the step, in seconds from the beginning. */
  const read = (from: number, to: number, stepSeconds: number, org = orgId) =>
    Effect.map(
      history.points(org, uid, windowOf(begin + from, begin + to, begin + to, stepSeconds)),
      (points) =>
        Object.fromEntries(
          [...points].map(([time, point]) => [
            (time - begin) / second,
            Object.fromEntries(
              [...point].map(([name, { count, sum, min, max, last }]) => [name, [count, sum, min, max, last]])
            )
          ])
        )
    )
  const rows = Effect.map(
    sql<Record<"samples" | "raw" | "fiveMinutes" | "hours", number>>`
      select (select count(*)::int from metric_sample where uid = ${uid}) as samples,
        (select count(*)::int from metric_raw where uid = ${uid}) as raw,
        (select count(*)::int from metric_five_minutes where uid = ${uid}) as "fiveMinutes",
        (select count(*)::int from metric_hour where uid = ${uid}) as hours`,
    ([row]) => row
  )
  return { sql, record, orgId, uid, at, read, rows }
})

layer(
  Layer.mergeAll(MetricSamples.layer, MetricHistory.layer, Resources.layer).pipe(
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  { excludeTestServices: true }
)("the history of measurements", (it) => {
  it.effect("says the same before and after it is packed, at every step", () =>
    Effect.gen(function* () {
      const { record, at, read, rows } = yield* place
      // 130 minutes with a gap of one, and a measurement that comes and goes.
      yield* record(
        Array.from({ length: 520 }, (_, index) => index)
          .filter((index) => index < 40 || index >= 44)
          .map((index) =>
            at(index * 15 * second, {
              "cpu.percent": (index * 37) % 101,
              ...(index % 3 === 0 ? { "redis.hits": index / 8 } : {})
            })
          )
      )
      const all = Effect.all([15, 60, 300, 3_600].map((step) => read(0, 3 * hour, step)))
      const before = yield* all
      assert.deepStrictEqual(before[0]?.[0], {
        "cpu.percent": [1, 0, 0, 0, 0],
        "redis.hits": [1, 0, 0, 0, 0]
      })
      assert.isUndefined(before[1]?.[600])
      assert.strictEqual(before[3]?.[3_600]?.["cpu.percent"]?.[0], 240)
      yield* pack()
      assert.deepStrictEqual(yield* rows, { samples: 0, raw: 3, fiveMinutes: 3, hours: 1 })
      assert.deepStrictEqual(yield* all, before)
    })
  )

  it.effect("takes what comes late, once, into hours that are packed already", () =>
    Effect.gen(function* () {
      const { record, at, read, rows } = yield* place
      const samples = Array.from({ length: 8 }, (_, index) =>
        at(index * 15 * second, { "cpu.percent": index })
      )
      yield* record(samples.filter((_, index) => index % 2 === 0))
      yield* pack()
      yield* record(samples)
      const expected = { 0: { "cpu.percent": [8, 28, 0, 7, 7] } }
      yield* pack()
      yield* pack()
      assert.deepStrictEqual(yield* read(0, hour, 300), expected)
      assert.deepStrictEqual(yield* read(0, hour, 3_600), expected)
      assert.deepStrictEqual(yield* rows, { samples: 0, raw: 1, fiveMinutes: 1, hours: 1 })
    })
  )

  it.effect("loses and doubles nothing when packing is cut off or done by several at once", () =>
    Effect.gen(function* () {
      const { sql, record, at, read, rows } = yield* place
      yield* record(Array.from({ length: 30 }, (_, index) => at(index * hour, { "cpu.percent": 1 })))
      // It has removed the samples when it comes to the last table.
      const [locked, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const holder = yield* Effect.forkChild(
        sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`lock table metric_hour in exclusive mode`
            yield* Deferred.succeed(locked, undefined)
            yield* Deferred.await(release)
          })
        )
      )
      yield* Deferred.await(locked)
      const packing = yield* Effect.forkChild(pack())
      yield* eventually(
        "packing waits for the last table",
        sql`select from pg_locks where relation = 'metric_hour'::regclass and not granted`,
        (waiting) => waiting.length > 0
      )
      yield* Fiber.interrupt(packing)
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(holder)
      assert.deepStrictEqual(yield* rows, { samples: 30, raw: 0, fiveMinutes: 0, hours: 0 })
      yield* Effect.all(
        Array.from({ length: 4 }, () => pack()),
        { concurrency: "unbounded" }
      )
      yield* pack()
      const left = (yield* rows)?.samples ?? 0
      // The last hours may not be over yet.
      assert.isAtMost(left, 30)
      const days = Object.values(yield* read(0, 48 * hour, 86_400)).flatMap(
        (point) => point["cpu.percent"]?.[0] ?? 0
      )
      assert.strictEqual(
        days.reduce((a, b) => a + b, 0),
        30
      )
    })
  )

  it.effect("is for the organization alone, and of resources that there are", () =>
    Effect.gen(function* () {
      const { sql, record, at, read, rows, uid } = yield* place
      const other = yield* place
      yield* record([at(0, { "cpu.percent": 1 })])
      assert.deepStrictEqual(yield* read(0, hour, 15, other.orgId), {})
      yield* sql`delete from work where uid = ${uid}`
      yield* sql`delete from resource where uid = ${uid}`
      yield* pack()
      assert.deepStrictEqual(yield* rows, { samples: 0, raw: 0, fiveMinutes: 0, hours: 0 })
    })
  )

  it.effect("takes few bytes", () =>
    Effect.gen(function* () {
      const { sql, record, at, uid } = yield* place
      // A process that works at random, and memory that moves a little: nothing repeats.
      let memory = 400_000_000
      yield* record(
        Array.from({ length: 240 }, (_, index) => {
          memory += Math.round(((Math.sin(index * 12.9898) * 43_758.5453) % 1) * 65_536)
          return at(index * 15 * second, {
            "cpu.percent": Math.abs((Math.sin(index * 78.233) * 43_758.5453) % 1) * 100,
            "memory.used_bytes": memory,
            "memory.limit_bytes": 2 ** 29,
            "runtime.uptime_seconds": index * 15
          })
        })
      )
      yield* pack()
      const [row] = yield* sql<{ readonly bytes: number }>`
        select (octet_length(r.data) + octet_length(f.data) + octet_length(h.data))::int as bytes from metric_raw r
        join metric_five_minutes f using (org_id, uid) join metric_hour h using (org_id, uid) where r.uid = ${uid}`
      // 960 numbers of 8 bytes, and their sums.
      assert.isBelow(row?.bytes ?? Number.NaN, 3_500)
    })
  )
})
