import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type BaseRange, numberOf, windowsOf } from "#src/backups/archive/log.ts"
import { WalRanges } from "#src/backups/archive/WalRanges.ts"
import { Db } from "#src/store/Db.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { firstAfter, type LogFile, namesOf, runsOf } from "./segments.ts"

const start = Date.UTC(2026, 0, 1)
const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, "0")
const place = (number: number) => `${hex(Math.floor(number / 1_024))}${hex(number % 1_024)}`
const record = Effect.fnUntraced(function* (files: ReadonlyArray<LogFile>) {
  const { engine: sql } = yield* Db
  const ref = { orgId: uuid(), lineage: uuid() }
  yield* sql`
    insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256,
      finished_at, flushed_at)
    select ${ref.orgId}::uuid, ${ref.lineage}::uuid, 'wal/' || f.name, f.name, 1, 1, '', '', f."finishedAt", f."flushedAt"
    from jsonb_to_recordset(${sql.json(files)}::jsonb) as f(name text, "finishedAt" timestamptz, "flushedAt" timestamptz)`
  // Another history, and what is no segment, are beside it.
  yield* sql`
    insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256)
    select ${ref.orgId}::uuid, l.lineage, l.name, '', 1, 1, '', '' from (values
      (${uuid()}::uuid, 'wal/' || ${`00000009${place(3)}`}::text), (${ref.lineage}::uuid, 'base/1'),
      (${ref.lineage}::uuid, 'zzz')) l(lineage, name)`
  return ref
})

layer(WalRanges.layer.pipe(Layer.provideMerge(testDb())), {
  excludeTestServices: true,
  timeout: "5 minutes"
})("the log in the store", (it) => {
  campaign(
    it.effect,
    "stored-log",
    "whatever the gaps, timelines and flushes, the store tells what the list of segments tells",
    {
      rounds: 10,
      after: (runs: ReadonlyArray<number>) =>
        assert.isAbove(
          runs.reduce((sum, one) => sum + one, 0),
          2 * runs.length
        )
    },
    Effect.fnUntraced(function* ({ seed }) {
      const ranges = yield* WalRanges
      const random = new Seeded(seed)
      const pick = (most: number) => random.int(0, most)
      // Across the boundary of a file.
      const first = 1_010 - pick(40)
      const files = new Map<string, LogFile>()
      let begin = first
      for (let timeline = 1; timeline <= 1 + pick(2); timeline++) {
        if (timeline > 1 && pick(4) > 0)
          files.set(`${hex(timeline)}.history`, { name: `${hex(timeline)}.history`, finishedAt: null })
        const length = 5 + pick(40)
        for (let number = begin; number < begin + length; number++) {
          if (pick(12) === 0) continue
          const name = `${hex(timeline)}${place(number)}`
          const finishedAt = new Date(start + number * 60_000 + timeline)
          files.set(name, {
            name,
            finishedAt,
            flushedAt: pick(9) === 0 ? new Date(+finishedAt + 500) : null
          })
        }
        begin += Math.max(1, length - pick(12))
      }
      const all = [...files.values()]
      const ref = yield* record(all)
      const from = place(first + pick(20))
      const seen = yield* ranges.runs(ref, from)
      const later = all.filter(({ name }) => name.slice(8) >= from || name.endsWith(".history"))
      assert.deepStrictEqual(seen, runsOf(later))
      const range = { timeline: 1 + pick(1), first: from, last: place(first + 20 + pick(40)) }
      const asked = { ...range, timeline: hex(range.timeline) }
      assert.deepStrictEqual(yield* ranges.names(ref, asked), namesOf(all, range))
      const at = new Date(start + (first + pick(60)) * 60_000)
      assert.strictEqual(yield* ranges.firstAfter(ref, asked, at), firstAfter(all, range, at))
      const histories = all.filter(({ name }) => name.endsWith(".history")).map(({ name }) => name)
      assert.deepStrictEqual(yield* ranges.histories(ref), histories)
      const segments = all.filter(({ name }) => name.length === 24)
      const last = segments.toSorted((a, b) => (a.name.slice(8) < b.name.slice(8) ? -1 : 1)).at(-1)
      if (segments.filter(({ name }) => name.slice(8) === last?.name.slice(8)).length === 1)
        assert.deepStrictEqual(yield* ranges.writtenUntil(ref), last?.finishedAt ?? undefined)
      const paged: Array<string> = []
      for (let after: string | undefined = ""; after !== undefined; ) {
        const page: ReadonlyArray<string> = yield* ranges.page(ref, { after, before: from, most: 7 })
        paged.push(...page)
        after = page.at(-1)
      }
      const before = segments.map(({ name }) => name).filter((name) => name.slice(8) < from)
      assert.deepStrictEqual(paged, before.sort())
      return seen.length
    })
  )

  it.effect("a year with a segment for each minute is one row, and a day's recovery is a day of names", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ranges = yield* WalRanges
      const ref = { orgId: uuid(), lineage: uuid() }
      const [days, daily] = [365, 1_440]
      yield* sql`
          insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256,
            finished_at)
          select ${ref.orgId}::uuid, ${ref.lineage}::uuid,
            'wal/00000001' || upper(lpad(to_hex(n / 1024), 8, '0') || lpad(to_hex(n % 1024), 8, '0')), '', 1, 1, '', '',
            ${new Date(start)}::timestamptz + n * interval '1 minute'
          from generate_series(0, ${days * daily - 1}::int) n`
      const bases = Array.from({ length: days }, (_, day): BaseRange => {
        const number = day * daily
        return {
          id: String(day),
          startSegment: `00000001${place(number)}`,
          stopSegment: `00000001${place(number + 1)}`,
          timeline: 1,
          consistentAt: new Date(start + number * 60_000 + 90_000)
        }
      })
      const runs = yield* ranges.runs(ref, place(0))
      assert.deepStrictEqual(
        runs.map(({ first, last }) => [numberOf(first), numberOf(last)]),
        [[0, days * daily - 1]]
      )
      assert.deepStrictEqual(windowsOf(bases, runs), [
        { from: bases[0]!.consistentAt, to: new Date(start + (days * daily - 1) * 60_000 - 2_000) }
      ])
      const base = bases[300]!
      const range = {
        timeline: "00000001",
        first: base.startSegment.slice(8),
        last: runs[0]!.last.slice(8)
      }
      const enough = yield* ranges.firstAfter(ref, range, new Date(+base.consistentAt + 600 * 60_000))
      assert.strictEqual(enough, place(300 * daily + 602))
      assert.lengthOf(yield* ranges.names(ref, { ...range, last: enough! }), 603)
      // In the order of the key, so that nothing is sorted and a first one is found at once.
      yield* sql`analyze backup_object`
      const plan = yield* sql<{ readonly "QUERY PLAN": string }>`
          explain select o.name, row_number() over (order by o.name) from backup_object o
          where o.org_id = ${ref.orgId}::uuid and o.lineage = ${ref.lineage}::uuid and o.name >= 'wal/00000001'
            and o.name < 'wal/00000001Z'`
      const told = plan.map((row) => row["QUERY PLAN"]).join("\n")
      assert.include(told, "backup_object_pkey")
      assert.notInclude(told, "Sort")
    })
  )

  it.effect("windows of many backups over many gaps are found in one walk", () =>
    Effect.sync(() => {
      let looks = 0
      const counted = <A extends object>(one: A) =>
        new Proxy(one, {
          get: (target, key) => {
            looks++
            return Reflect.get(target, key)
          }
        })
      const gaps = 2_000
      const runs = Array.from({ length: gaps }, (_, n) =>
        counted({
          first: `00000001${place(n * 10)}`,
          last: `00000001${place(n * 10 + 8)}`,
          finishedAt: new Date(start + (n * 10 + 8) * 60_000),
          flushedAt: null
        })
      )
      const bases = Array.from({ length: gaps }, (_, n): BaseRange => {
        const startSegment = `00000001${place(n * 10)}`
        const consistentAt = new Date(start + n * 10 * 60_000 + 30_000)
        return { id: String(n), startSegment, stopSegment: startSegment, timeline: 1, consistentAt }
      })
      assert.lengthOf(windowsOf(bases, runs), gaps)
      assert.isBelow(looks, gaps * 20)
    })
  )
})
