/**
 * A month of measurements, made quickly: the product sums up one day, and the other days are copies of that one, batches
 * and sums. What was not made by the product is held against what it makes of the same measurements.
 */
import { deepStrictEqual } from "node:assert"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import type postgres from "postgres"
import { devices, metrics, navigations } from "#src/speed-insights/batch.ts"
import { rollUp } from "#src/speed-insights/rollup.ts"
import { SpeedBatches } from "#src/speed-insights/SpeedBatches.ts"

export interface Place {
  readonly orgId: string
  readonly projectId: string
  readonly environmentUid: string
}

/** A measurement of each metric. */
export const perBatch = metrics.length
/** On two devices each: as many rows of a day as the product keeps. */
const routes = 1_000
/** Batches that the product stores again. */
const stored = 200
const dayMs = 24 * 3_600_000

const dateOf = (day: number): string => new Date(day).toISOString().slice(0, 10)

/**
 * So many days (UTC) before yesterday, and that one, with so many batches each. Answers the beginning of the first, and how
 * long the product took to sum it up.
 */
export const seedDays = Effect.fn(function* (sql: postgres.Sql, place: Place, days: number, batches: number) {
  const first = (Math.floor(Date.now() / dayMs) - days - 2) * dayMs
  const [date, of] = [dateOf(first), (number: number) => dateOf(first + number * dayMs)]
  const run = (statement: () => PromiseLike<unknown>) => Effect.promise(async () => statement())
  const rolledUntil = (date: string) =>
    run(
      () =>
        sql`update speed_rollup set rolled_until = ${date}::timestamp at time zone 'UTC' - interval '1 second'`
    )
  const copyBatches = (number: number) =>
    run(() =>
      addDay(
        sql,
        of(number),
        (part) => sql`
        insert into ${sql(part)}
        select org_id, project_uid, environment_uid, day + ${number}::int, batch_id, received_at + shift,
          array(select t + shift from unnest(at) t), metric, value, route, device, navigation
        from speed_batch, make_interval(hours => ${24 * number}::int) shift where day = ${date}::date`
      )
    )

  yield* run(() => sql`truncate speed_batch, speed_day`)
  yield* rolledUntil(date)
  yield* run(() =>
    addDay(sql, date, (part) => sql`insert into ${sql(part)} ${measured(sql, place, date, batches)}`)
  )
  yield* storedAlike(sql, place, date)
  const began = performance.now()
  yield* rollUp
  const summedMs = performance.now() - began

  yield* copyBatches(1)
  yield* rollUp
  yield* summedAlike(sql, date)

  for (let number = 2; number <= days; number++) yield* copyBatches(number)
  yield* run(
    () => sql`
    insert into speed_day (org_id, project_uid, environment_uid, day, route, device, samples, hours, total)
    select org_id, project_uid, environment_uid, day + number, route, device, samples, hours, total
    from generate_series(2, ${days}::int) number, speed_day where day = ${date}::date`
  )
  yield* rolledUntil(of(days + 1))
  yield* run(() => sql`vacuum analyze speed_day`)
  yield* run(() => sql`analyze speed_batch`)
  return { first, summedMs }
})

/** A day's table is filled before it is attached, which makes its indexes. */
const addDay = async (sql: postgres.Sql, date: string, fill: (part: string) => PromiseLike<unknown>) => {
  const part = `speed_batch_${date.replaceAll("-", "")}`
  await sql`drop table if exists ${sql(part)}`
  await sql`create table ${sql(part)} (like speed_batch including defaults including constraints)`
  await sql`select svc_tenant_table(${part}, false)`
  await fill(part)
  await sql.unsafe(
    `alter table speed_batch attach partition ${part} for values from ('${date}') to (date '${date}' + 1)`
  )
}

/** Spread evenly over the day, most of them of few routes. */
const measured = (sql: postgres.Sql, place: Place, date: string, batches: number) => sql`
  select ${place.orgId}::uuid, ${place.projectId}::uuid, ${place.environmentUid}::uuid, ${date}::date, 'batch-' || i, at,
    array_fill(at, array[5]), '{0,1,2,3,4}',
    array[0.02 * exp(2 * random()), 900 * exp(random()), 60 * exp(2 * random()), 1200 * exp(random()),
      200 * exp(2 * random())],
    array_fill('/route/' || floor(${routes}::int * random() ^ 3)::int, array[5]),
    array_fill(floor(2 * random())::int, array[5]), '{0,0,0,0,0}'
  from (
    select i, date_trunc('milliseconds', ${date}::timestamp at time zone 'UTC'
      + interval '1 day' * ((i - 1)::float8 / ${batches}::int)) as at
    from generate_series(1, ${batches}::int) i
  ) b`

interface Row {
  readonly id: string
  readonly at: ReadonlyArray<Date>
  readonly metric: ReadonlyArray<number>
  readonly value: ReadonlyArray<number>
  readonly route: ReadonlyArray<string>
  readonly device: ReadonlyArray<number>
  readonly navigation: ReadonlyArray<number>
}

/** The product stores the same rows of the same measurements. */
const storedAlike = Effect.fnUntraced(function* (sql: postgres.Sql, place: Place, date: string) {
  const batches = yield* SpeedBatches
  const find = (prefix: string) =>
    Effect.promise(
      () => sql<Array<Row>>`
        select substr(batch_id, ${prefix.length + 1}::int) as id, at, metric, value, route, device, navigation
        from speed_batch where day = ${date}::date and starts_with(batch_id, ${prefix})
        order by length(batch_id), batch_id limit ${stored}::int`
    )
  const made = yield* find("batch-")
  yield* Effect.forEach(
    made,
    ({ id, at, metric, value, route, device, navigation }) =>
      batches.add({
        ...place,
        batchId: `product-${id}`,
        bytes: 1_000,
        events: at.map((time, i) => ({
          eventId: `e${i}`,
          metric: metrics[metric[i] ?? -1]!,
          value: value[i]!,
          timestamp: DateTime.makeUnsafe(time),
          route: route[i]!,
          device: devices[device[i] ?? -1]!,
          navigationType: navigations[navigation[i] ?? -1]!
        }))
      }),
    { concurrency: "unbounded", discard: true }
  )
  deepStrictEqual([...(yield* find("product-"))], [...made])
  yield* Effect.promise(
    () => sql`delete from speed_batch where day = ${date}::date and starts_with(batch_id, 'product-')`
  )
})

/** The product makes the same sums of the copy of a day as of that day. */
const summedAlike = Effect.fnUntraced(function* (sql: postgres.Sql, date: string) {
  const different = yield* Effect.promise(
    () => sql`
      with of_first as (select day + 1, route, device, samples, hours, total from speed_day where day = ${date}::date),
      of_copy as (select day, route, device, samples, hours, total from speed_day where day = ${date}::date + 1)
      (table of_first except table of_copy) union all (table of_copy except table of_first)`
  )
  deepStrictEqual(different.length, 0)
})
