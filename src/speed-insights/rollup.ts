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

/** Batches of one transaction. */
const slice = 5_000
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

const sumUp = (rows: ReadonlyArray<Row>): Map<string, Sum> => {
  const sums = new Map<string, Sum>()
  for (const { orgId, projectId, environmentUid, at, metric, value, route, device } of rows) {
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
  return sums
}

/** Merges with what is stored, and leaves out routes for which there is no room. */
const merged = Effect.fnUntraced(function* (sql: Sql, sums: Map<string, Sum>) {
  const keys = [...sums.values()].map(({ key }) => key)
  const stored = yield* sql<Key & { readonly samples: number; readonly hours: Uint8Array }>`
    select d.org_id as "orgId", d.project_uid as "projectId", d.environment_uid as "environmentUid", d.day::text as day,
      d.route, d.device, d.samples, d.hours
    from jsonb_to_recordset(${sql.json(keys)}::jsonb)
      as k("orgId" uuid, "projectId" uuid, "environmentUid" uuid, day date, route text, device smallint)
    join speed_day d on d.org_id = k."orgId" and d.project_uid = k."projectId"
      and d.environment_uid = k."environmentUid" and d.day = k.day and d.route = k.route and d.device = k.device`
  const known = new Set<string>()
  for (const { samples, hours, ...key } of stored) {
    const sum = sums.get(nameOf(key))
    if (sum === undefined) continue
    known.add(nameOf(key))
    sum.samples += samples
    unpack(hours, (slot, bucket, count) => addTo(sum.hours, slot, bucket, count))
  }
  const places = new Map(keys.map((key): [string, Place] => [placeOf(key), key]))
  const counted = yield* sql<Place & { readonly routes: number }>`
    select k."environmentUid", k.day::text as day, count(d.route)::int as routes
    from jsonb_to_recordset(${sql.json([...places.values()])}::jsonb)
      as k("orgId" uuid, "projectId" uuid, "environmentUid" uuid, day date)
    left join speed_day d on d.org_id = k."orgId" and d.project_uid = k."projectId"
      and d.environment_uid = k."environmentUid" and d.day = k.day and d.route <> ''
    group by 1, 2`
  const routes = new Map(counted.map((one) => [placeOf(one), one.routes]))
  return [...sums].flatMap(([name, sum]) => {
    if (sum.key.route === "" || known.has(name)) return [sum]
    const place = placeOf(sum.key)
    const there = routes.get(place) ?? 0
    if (there >= mostRoutes) return []
    routes.set(place, there + 1)
    return [sum]
  })
})

/** One transaction. Answers how many batches it added; another process at it adds none. */
const addSlice = (sql: Sql) =>
  orUnavailable(
    transaction(
      sql,
      Effect.gen(function* () {
        const [mark] = yield* sql<{ readonly rolledUntil: string }>`
          select rolled_until::text as "rolledUntil" from speed_rollup for update skip locked`
        if (mark === undefined) return 0
        // Index: speed_batch_received. All of one statement have one time: they stay together.
        const rows = yield* sql<Row>`
          select org_id as "orgId", project_uid as "projectId", environment_uid as "environmentUid",
            array(select (extract(epoch from t) * 1000)::float8 from unnest(at) t) as at,
            metric::int[] as metric, value::float8[] as value, route, device::int[] as device,
            received_at::text as "receivedAt"
          from speed_batch
          where received_at > ${mark.rolledUntil}::timestamptz
            and received_at <= now() - make_interval(secs => ${settledSeconds}::int)
          order by received_at fetch first (${slice}::int) rows with ties`
        const last = rows.at(-1)
        if (last === undefined) return 0
        const sums = yield* merged(sql, sumUp(rows))
        const changed = sums.map(({ key, hours, samples }) => ({
          ...key,
          samples,
          hours: Buffer.from(pack(hours)).toString("base64"),
          total: Buffer.from(pack(wholeDay(hours))).toString("base64")
        }))
        // Of a project that is gone nothing is stored.
        yield* sql`
          with stored as (
            insert into speed_day (org_id, project_uid, environment_uid, day, route, device, samples, hours, total)
            select k."orgId", k."projectId", k."environmentUid", k.day, k.route, k.device, k.samples,
              decode(k.hours, 'base64'), decode(k.total, 'base64')
            from jsonb_to_recordset(${sql.json(changed)}::jsonb) as k("orgId" uuid, "projectId" uuid,
              "environmentUid" uuid, day date, route text, device smallint, samples int, hours text, total text)
            join speed_project p on p.org_id = k."orgId" and p.project_uid = k."projectId"
            on conflict (org_id, project_uid, environment_uid, day, route, device) do update set
              samples = excluded.samples, hours = excluded.hours, total = excluded.total
          )
          update speed_rollup set rolled_until = ${last.receivedAt}::timestamptz`
        return rows.length
      })
    )
  )

/** One round. */
export const rollUp = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* Effect.repeat(addSlice(sql), { while: (batches) => batches >= slice })
})

export const layer = Layer.effectDiscard(
  periodic({ does: "sum up measurements", every: "5 minutes" }, rollUp)
)
