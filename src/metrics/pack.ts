/**
 * Packs samples of hours that are over: into the samples of the hour, sums over five minutes, and a sum over the hour, all in
 * the transaction that removes them. So each sample counts once in each, whoever is killed when.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, orUnavailable, repeatable, type Sql, transaction } from "#src/store/Db.ts"
import { decode, encode } from "./codec.ts"
import { add, addTable, coarser, ofSample, type Points, toTable } from "./points.ts"
import { fiveMinutes, hours, raw, type Tier } from "./tiers.ts"
import { inTurns } from "./turns.ts"

/** Samples may come so late without being packed on their own. */
const lateMinutes = 10
/** Hours of resources that one transaction packs. */
const batch = 25
/** Hours of resources that are chosen at once. */
const mostHours = 20_000
/** Any fixed number does; it only has to be the same in every process. */
const lockId = 7_310_577_236

interface Place {
  readonly orgId: string
  readonly uid: string
}
interface Hour extends Place {
  readonly start: Date
}
interface SampleRow extends Hour {
  readonly at: Date
  readonly values: Readonly<Record<string, number>>
}
interface Packed extends Hour {
  readonly data: Uint8Array
}

/**
 * The hours that are over and not packed, the oldest first. All samples of the last hours are read for it, so it is asked once
 * and not before each batch. Index: metric_sample_age.
 */
const hoursOver = (sql: Sql, now: Date | undefined) => sql<Hour>`
  select distinct org_id as "orgId", uid, date_bin('1 hour', at, 'epoch') as start from metric_sample
  where at < date_bin('1 hour', coalesce(${now ?? null}::timestamptz, now())
    - make_interval(mins => ${lateMinutes}::int), 'epoch')
  order by start, "orgId", uid limit ${mostHours}::int`

/** Packs these hours. False: somebody else is packing. */
const packSome = (sql: Sql, some: ReadonlyArray<Hour>) =>
  Effect.gen(function* () {
    const [lock] = yield* sql<{ readonly held: boolean }>`
      select pg_try_advisory_xact_lock(${lockId}::bigint) as held`
    // What is read here must not be written there meanwhile.
    if (lock?.held !== true) return false
    // What somebody else has packed since it was chosen is not found. Index: the primary key.
    const samples = yield* sql<SampleRow>`
      delete from metric_sample s using ${placesOf(sql, some)} as o(org_id, uid, start)
      where s.org_id = o.org_id and s.uid = o.uid and s.at >= o.start and s.at < o.start + interval '1 hour'
      returning s.org_id as "orgId", s.uid, o.start, s.at, s.values`
    const byHour = Map.groupBy(samples, ({ uid, start }) => `${uid} ${start.getTime()}`)
    const over = [...byHour.values()].flatMap(([first]) => (first === undefined ? [] : [first]))
    const [packedBefore, daysBefore] = [yield* rowsOf(sql, raw, over), yield* rowsOf(sql, hours, over)]
    const days = new Map<string, { readonly place: Hour; readonly points: Points }>()
    const packed = { raw: [] as Packed[], fiveMinutes: [] as Packed[] }
    for (const [key, rows] of byHour) {
      const [place] = rows
      if (place === undefined) continue
      const points: Points = new Map()
      const before = packedBefore.get(key)
      if (before !== undefined) addTable(points, decode(before))
      for (const { at, values } of rows) {
        for (const [name, value] of Object.entries(values)) {
          points.get(at.getTime())?.delete(name)
          add(points, at.getTime(), name, ofSample(value))
        }
      }
      packed.raw.push({ ...place, data: encode(toTable(points, true)) })
      packed.fiveMinutes.push({ ...place, data: encode(toTable(coarser(points, 300_000), false)) })
      const day = rowStart(hours, place.start)
      const dayKey = `${place.uid} ${day.getTime()}`
      const known = days.get(dayKey)
      const ofDay = known?.points ?? new Map()
      const dayBefore = daysBefore.get(dayKey)
      if (known === undefined && dayBefore !== undefined) addTable(ofDay, decode(dayBefore))
      for (const [time, point] of coarser(points, hours.stepSeconds * 1_000)) ofDay.set(time, point)
      days.set(dayKey, { place: { ...place, start: day }, points: ofDay })
    }
    yield* store(sql, raw, packed.raw)
    yield* store(sql, fiveMinutes, packed.fiveMinutes)
    yield* store(
      sql,
      hours,
      [...days.values()].map(({ place, points }) => ({ ...place, data: encode(toTable(points, false)) }))
    )
    return true
  })

const rowStart = ({ rowSeconds }: Tier, time: Date) =>
  new Date(Math.floor(time.getTime() / (rowSeconds * 1_000)) * rowSeconds * 1_000)

const placesOf = (sql: Sql, places: ReadonlyArray<Hour>) => sql`
  unnest(${places.map(({ orgId }) => orgId)}::uuid[], ${places.map(({ uid }) => uid)}::uuid[],
    ${places.map(({ start }) => start.toISOString())}::timestamptz[])`

/** What is packed already of the rows that hold these hours. Index: the primary key. */
const rowsOf = (sql: Sql, tier: Tier, places: ReadonlyArray<Hour>) =>
  Effect.map(
    sql<Packed>`
      select t.org_id as "orgId", t.uid, t.start, t.data from (
        select distinct * from ${placesOf(
          sql,
          places.map((place) => ({ ...place, start: rowStart(tier, place.start) }))
        )} as p(org_id, uid, start)
      ) p join ${sql(tier.table)} t on t.org_id = p.org_id and t.uid = p.uid and t.start = p.start`,
    (rows) => new Map(rows.map(({ uid, start, data }) => [`${uid} ${start.getTime()}`, data]))
  )

/** Of resources that there are: of others there is nothing to keep. */
const store = (sql: Sql, tier: Tier, rows: ReadonlyArray<Packed>) => sql`
  insert into ${sql(tier.table)} (org_id, uid, start, data)
  select p.org_id, p.uid, p.start, d.data
  from ${placesOf(sql, rows)} with ordinality as p(org_id, uid, start, n)
  join unnest(${rows.map(({ data }) => Buffer.from(data).toString("hex"))}::text[]) with ordinality as h(hex, n) using (n)
  cross join lateral (select decode(h.hex, 'hex') as data) d
  where exists (select from resource r where r.org_id = p.org_id and r.uid = p.uid)
  on conflict (org_id, uid, start) do update set data = excluded.data`

/** Until nothing is left to pack, or somebody else is packing. `now` is for tests. */
export const pack = (now?: Date) =>
  Effect.flatMap(Db, ({ engine: sql }) =>
    Effect.gen(function* () {
      const chosen = yield* repeatable(hoursOver(sql, now))
      for (const some of Arr.chunksOf(chosen, batch)) {
        if (!(yield* orUnavailable(transaction(sql, packSome(sql, some))))) return false
      }
      return chosen.length >= mostHours
    }).pipe(Effect.repeat({ while: (more) => more }))
  )

export const layer = Layer.effectDiscard(
  inTurns({ name: "pack", does: "pack measurements", seconds: 300 }, pack())
)
