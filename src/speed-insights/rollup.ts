/**
 * Adds batches to the sums of their days, in the order in which they were received. How far that has come is stored by the
 * transaction that stores the sums: each batch is in them once, and whatever is later than that mark is read as it came.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { Db, orUnavailable, type Sql, transaction } from "#src/store/Db.ts"
import { addTo, pack, type Slots, slotOf, unpack, wholeDay } from "./packed.ts"
import { bucketOf } from "./sketch.ts"

/**
 * What one transaction takes: so many batches, and no further ones once there are so many measurements. Those of one
 * statement stay together, which are 40,000 at most.
 */
const mostBatches = 2_000
const mostEvents = 20_000
/** Sums of one statement: each may have a kilobyte of route, and tens of sketch. */
const mostSums = 1_000
/** Measurements and sums that are worked on before others have their turn. */
const turn = 500
/**
 * A batch's time is that of the beginning of its statement, which may take half a minute until it is seen: so long after a
 * moment, nothing comes with an earlier time.
 */
const settledSeconds = 120
/** Rows of routes in a day of an environment: who makes up routes does not fill the store. Others are in the sums of all. */
export const mostRoutes = 2_000

interface Row {
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
  /** Milliseconds since 1970. */
  readonly at: ReadonlyArray<number>
  readonly metric: ReadonlyArray<number>
  readonly value: ReadonlyArray<number>
  readonly route: ReadonlyArray<string>
  readonly device: ReadonlyArray<number>
  readonly receivedAt: string
}

interface Place {
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
  readonly day: string
}
interface Key extends Place {
  readonly route: string
  readonly device: number
}
interface Sum {
  readonly key: Key
  readonly hours: Slots
  samples: number
}

const nameOf = ({ environmentUid, day, route, device }: Key) => `${environmentUid} ${day} ${device} ${route}`
const placeOf = ({ environmentUid, day }: Place) => `${environmentUid} ${day}`

const sumUp = Effect.fnUntraced(function* (rows: ReadonlyArray<Row>) {
  const sums = new Map<string, Sum>()
  let sinceTurn = 0
  for (const { orgId, projectId, environmentUid, at, metric, value, route, device } of rows) {
    sinceTurn += at.length
    if (sinceTurn >= turn) {
      sinceTurn = 0
      yield* Effect.yieldNow
    }
    for (const [i, time] of at.entries()) {
      const moment = new Date(time)
      const slot = slotOf(moment.getUTCHours(), metric[i] ?? 0)
      const bucket = bucketOf(value[i] ?? 0)
      const day = moment.toISOString().slice(0, 10)
      for (const path of ["", route[i] ?? ""]) {
        const key = { orgId, projectId, environmentUid, day, route: path, device: device[i] ?? 0 }
        const name = nameOf(key)
        const sum = sums.get(name) ?? { key, hours: new Map(), samples: 0 }
        addTo(sum.hours, slot, bucket, 1)
        sum.samples++
        sums.set(name, sum)
      }
    }
  }
  return [...sums.values()]
})

/** Of each place no more routes than there can be room for: those with the most measurements. */
const busiest = (sums: ReadonlyArray<Sum>): ReadonlyArray<Sum> =>
  [...Map.groupBy(sums, ({ key }) => placeOf(key)).values()].flatMap((ofPlace) => [
    ...ofPlace.filter(({ key }) => key.route === ""),
    ...ofPlace
      .filter(({ key }) => key.route !== "")
      .sort((a, b) => b.samples - a.samples)
      .slice(0, mostRoutes)
  ])

/** How many routes the store has of each place. */
const routesOf = Effect.fnUntraced(function* (sql: Sql, sums: ReadonlyArray<Sum>) {
  const places = new Map(
    sums.map(({ key: { orgId, projectId, environmentUid, day } }): [string, Place] => [
      placeOf({ orgId, projectId, environmentUid, day }),
      { orgId, projectId, environmentUid, day }
    ])
  )
  const counted = yield* sql<Place & { readonly routes: number }>`
    select k."environmentUid", k.day::text as day, count(d.route)::int as routes
    from jsonb_to_recordset(${sql.json([...places.values()])}::jsonb)
      as k("orgId" uuid, "projectId" uuid, "environmentUid" uuid, day date)
    left join speed_day d on d.org_id = k."orgId" and d.project_uid = k."projectId"
      and d.environment_uid = k."environmentUid" and d.day = k.day and d.route <> ''
    group by 1, 2`
  return new Map(counted.map((one) => [placeOf(one), one.routes]))
})

/** Merges with what is stored, and leaves out routes for which there is no room. */
const merged = Effect.fnUntraced(function* (sql: Sql, sums: ReadonlyArray<Sum>, routes: Map<string, number>) {
  const stored = yield* sql<Key & { readonly samples: number; readonly hours: Uint8Array }>`
    select d.org_id as "orgId", d.project_uid as "projectId", d.environment_uid as "environmentUid", d.day::text as day,
      d.route, d.device, d.samples, d.hours
    from jsonb_to_recordset(${sql.json(sums.map(({ key }) => key))}::jsonb)
      as k("orgId" uuid, "projectId" uuid, "environmentUid" uuid, day date, route text, device smallint)
    join speed_day d on d.org_id = k."orgId" and d.project_uid = k."projectId"
      and d.environment_uid = k."environmentUid" and d.day = k.day and d.route = k.route and d.device = k.device`
  const before = new Map(stored.map((one) => [nameOf(one), one]))
  const changed: Array<Key & { samples: number; hours: string; total: string }> = []
  for (const [index, { key, hours, samples }] of sums.entries()) {
    if (index % turn === turn - 1) yield* Effect.yieldNow
    const known = before.get(nameOf(key))
    if (known === undefined && key.route !== "") {
      const there = routes.get(placeOf(key)) ?? 0
      if (there >= mostRoutes) continue
      routes.set(placeOf(key), there + 1)
    }
    if (known !== undefined) unpack(known.hours, (slot, bucket, count) => addTo(hours, slot, bucket, count))
    changed.push({
      ...key,
      samples: samples + (known?.samples ?? 0),
      hours: Buffer.from(pack(hours)).toString("base64"),
      total: Buffer.from(pack(wholeDay(hours))).toString("base64")
    })
  }
  return changed
})

/** Of a project that is gone nothing is stored. */
const store = Effect.fnUntraced(function* (sql: Sql, sums: ReadonlyArray<Sum>, routes: Map<string, number>) {
  const changed = yield* merged(sql, sums, routes)
  yield* sql`
    insert into speed_day (org_id, project_uid, environment_uid, day, route, device, samples, hours, total)
    select k."orgId", k."projectId", k."environmentUid", k.day, k.route, k.device, k.samples,
      decode(k.hours, 'base64'), decode(k.total, 'base64')
    from jsonb_to_recordset(${sql.json(changed)}::jsonb) as k("orgId" uuid, "projectId" uuid,
      "environmentUid" uuid, day date, route text, device smallint, samples int, hours text, total text)
    join speed_project p on p.org_id = k."orgId" and p.project_uid = k."projectId"
    on conflict (org_id, project_uid, environment_uid, day, route, device) do update set
      samples = excluded.samples, hours = excluded.hours, total = excluded.total`
})

/** One transaction. Answers whether it took as much as it may; another process at it takes none. */
export const addSlice = (sql: Sql) =>
  orUnavailable(
    transaction(
      sql,
      Effect.gen(function* () {
        const [mark] = yield* sql<{ readonly rolledUntil: string }>`
          select rolled_until::text as "rolledUntil" from speed_rollup for update skip locked`
        if (mark === undefined) return false
        // Index: speed_batch_received. All of one statement have one time: they stay together.
        const rows = yield* sql<Row>`
          with oldest as materialized (
            select * from speed_batch
            where received_at > ${mark.rolledUntil}::timestamptz
              and received_at <= now() - make_interval(secs => ${settledSeconds}::int)
            order by received_at fetch first (${mostBatches}::int) rows with ties
          ), counted as (
            select o.*, coalesce(sum(cardinality(metric)) over (order by received_at
              range between unbounded preceding and current row exclude group), 0) as events_before from oldest o
          )
          select org_id as "orgId", project_uid as "projectId", environment_uid as "environmentUid",
            array(select (extract(epoch from t) * 1000)::float8 from unnest(at) t) as at,
            metric::int[] as metric, value::float8[] as value, route, device::int[] as device,
            received_at::text as "receivedAt"
          from counted where events_before < ${mostEvents}::int order by received_at`
        const last = rows.at(-1)
        if (last === undefined) return false
        const sums = busiest(yield* sumUp(rows))
        const routes = yield* routesOf(sql, sums)
        for (let from = 0; from < sums.length; from += mostSums)
          yield* store(sql, sums.slice(from, from + mostSums), routes)
        yield* sql`update speed_rollup set rolled_until = ${last.receivedAt}::timestamptz`
        return rows.length >= mostBatches || rows.reduce((sum, { at }) => sum + at.length, 0) >= mostEvents
      })
    )
  )

/** One round. */
export const rollUp = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* Effect.repeat(addSlice(sql), { while: (isFull) => isFull })
})

export const layer = Layer.effectDiscard(
  periodic({ does: "sum up measurements", every: "5 minutes" }, rollUp)
)
