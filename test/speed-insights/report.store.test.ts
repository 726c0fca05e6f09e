/** Reports, against what SQL says of the same measurements. */
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { keepDays } from "#src/speed-insights/partitions.ts"
import { addSlice, rollUp } from "#src/speed-insights/rollup.ts"
import { Db } from "#src/store/Db.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { batchOf, event, measuredProject, query, type Site, send } from "./world.ts"

const hourMs = 3_600_000
const store = Layer.unwrap(
  Effect.map(Plane, ({ databaseUrl }) => Db.layer({ url: Redacted.make(databaseUrl) }))
)

/** Numbers that are the same in every run. */
const numbers = (seed: number) => {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return state / 2 ** 31
  }
}

/** The uids of a project and of its production. */
const idsOf = ({ project }: Site) =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const [ids] = yield* sql<{
      readonly org: string
      readonly project: string
      readonly environment: string
    }>`
      select p.org_id as org, p.uid as project, e.uid as environment from resource p
      join resource e on e.org_id = p.org_id and e.project_id = p.uid and e.name = 'production'
      where p.name = ${project} and p.kind = 'Project'`
    return ids!
  })

const routes = ["/", "/cart", "/products/:id", "/about"]

/** So many measurements in each of the last hours, straight into the store, as if they had come long ago. */
const history = (site: Site, hours: number, perHour: number) =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const { org, project, environment } = yield* idsOf(site)
    const random = numbers(hours)
    const end = Math.floor(Date.now() / hourMs) * hourMs
    const rows = Array.from({ length: hours * perHour }, (_, i) => {
      const at = end - (Math.floor(i / perHour) + random()) * hourMs
      const metric = i % 5
      const value = Math.exp((metric === 0 ? -3 : 6) + 2 * random())
      return {
        id: `b${i}`,
        ord: i,
        at: new Date(at).toISOString(),
        metric,
        value,
        route: routes[Math.floor(random() * routes.length)],
        device: Math.floor(random() * 2)
      }
    })
    // Days that no intake would take any more.
    yield* sql`select svc_speed_partitions()`
    yield* sql`
      insert into speed_batch (org_id, project_uid, environment_uid, day, batch_id, received_at, at, metric, value,
        route, device, navigation)
      select ${org}::uuid, ${project}::uuid, ${environment}::uuid, (at at time zone 'UTC')::date, id,
        now() - interval '1 hour' + ord * interval '1 millisecond', array[at], array[metric], array[value], array[route], array[device], '{0}'
      from jsonb_to_recordset(${sql.json(rows)}::jsonb)
        as b(id text, at timestamptz, metric smallint, value real, route text, device smallint, ord int)`
    return { from: end - hours * hourMs, until: end }
  })

/** The mark before everything that came. */
const unroll = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  yield* sql`delete from speed_day`
  yield* sql`update speed_rollup set rolled_until = now() - interval '2 hours'`
})

interface Vital {
  readonly metric: string
  readonly samples: number
  readonly p75: number
}

/** What `percentile_disc` says of the raw measurements. */
const exactly = (site: Site, from: number, until: number, where = "true") =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const { project } = yield* idsOf(site)
    return yield* sql<{
      readonly metric: number
      readonly samples: number
      readonly p: ReadonlyArray<number>
    }>`
      select e.metric::int as metric, count(*)::int as samples,
        percentile_disc(array[0.75, 0.9, 0.95, 0.99]) within group (order by e.value::float8) as p
      from speed_batch b, unnest(b.at, b.metric, b.value, b.route, b.device) as e(at, metric, value, route, device)
      where b.project_uid = ${project}::uuid and e.at >= ${new Date(from)}::timestamptz
        and e.at < ${new Date(until)}::timestamptz and ${sql.literal(where)}
      group by 1 order by 1`
  })

const agrees = (
  found: ReadonlyArray<Vital & Record<string, unknown>>,
  exact: Effect.Success<ReturnType<typeof exactly>>,
  what: string
) => {
  const measured = found.filter(({ samples }) => samples > 0)
  assert.deepStrictEqual(
    measured.map(({ samples }) => samples),
    exact.map(({ samples }) => samples),
    what
  )
  for (const [i, { p }] of exact.entries())
    for (const [j, name] of ["p75", "p90", "p95", "p99"].entries()) {
      const value = Number(measured[i]?.[name])
      // And what is lost by rounding to four digits.
      assert.isAtMost(Math.abs(value - p[j]!) / p[j]!, 0.0106, `${what} ${name}: ${value} for ${p[j]}`)
    }
}

const world = store.pipe(Layer.provideMerge(testPlane()))

layer(world, { excludeTestServices: true })("a report", (it) => {
  it.effect("says within 1 % what SQL says, whether it is summed up, half of it, or not at all", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* measuredProject()
      yield* unroll
      const { from, until } = yield* history(site, 40, 60)
      const window = { from: new Date(from), until: new Date(until) }
      const check = (what: string) =>
        Effect.gen(function* () {
          const whole = (yield* query(site, { ...window, granularity: "hour" })).body
          agrees(whole.summary.vitals, yield* exactly(site, from, until), what)
          assert.strictEqual(whole.series.length, 40)
          assert.isTrue(whole.series.every(({ samples }: { samples: number }) => samples === 60))
          const daily = (yield* query(site, { ...window, granularity: "day" })).body
          assert.deepStrictEqual(daily.summary, whole.summary)
          assert.strictEqual(
            daily.series.reduce((sum: number, { samples }: { samples: number }) => sum + samples, 0),
            2_400
          )
          for (const { route, vitals } of whole.routes) {
            agrees(vitals, yield* exactly(site, from, until, `e.route = '${route}'`), `${what} ${route}`)
            const alone = (yield* query(site, { ...window, route })).body
            assert.deepStrictEqual(alone.summary.vitals, vitals)
            assert.deepStrictEqual(alone.routes.length, 1)
          }
          assert.sameMembers(
            whole.routes.map(({ route }: { route: string }) => route),
            routes
          )
          const phones = (yield* query(site, { ...window, device: "mobile" })).body
          agrees(phones.summary.vitals, yield* exactly(site, from, until, "e.device = 1"), `${what} phones`)
          // Three hours across midnight or not: a part of a day.
          const short = { from: from + 7 * hourMs, until: from + 10 * hourMs }
          const part = (yield* query(site, { from: new Date(short.from), until: new Date(short.until) })).body
          agrees(part.summary.vitals, yield* exactly(site, short.from, short.until), `${what} short`)
          agrees(
            part.routes[0].vitals,
            yield* exactly(site, short.from, short.until, `e.route = '${part.routes[0].route}'`),
            `${what} short route`
          )
        })
      yield* check("raw")
      // Half of it is settled.
      yield* sql`update speed_batch set received_at = now() where abs(hashtext(batch_id)) % 2 = 0`
      yield* rollUp
      yield* check("half")
      yield* sql`update speed_batch set received_at = now() - interval '1 hour' where received_at > now() - interval '10 minutes'`
      yield* unroll
      // Several processes at it: each batch is in the sums once.
      yield* Effect.all([rollUp, rollUp, rollUp], { concurrency: 3 })
      yield* rollUp
      yield* check("summed up")
      const [left] = yield* sql`select from speed_rollup where rolled_until < now() - interval '70 minutes'`
      assert.isUndefined(left)
    })
  )

  it.effect("counts what comes late in its own hour, also when that was summed up before", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* measuredProject()
      const at = new Date(Date.now() - 5 * hourMs)
      const count = Effect.map(query(site, { from: new Date(at.getTime() - hourMs) }), ({ body }) =>
        body.series.find(
          ({ bucket }: { bucket: string }) => bucket.slice(0, 13) === at.toISOString().slice(0, 13)
        )
      )
      /** What came just now came so many minutes ago. */
      const ago = (minutes: number) => sql`
        update speed_batch set received_at = now() - make_interval(mins => ${minutes}::int)
        where received_at > now() - interval '2 minutes'`
      yield* sql`update speed_rollup set rolled_until = now() - interval '15 minutes'`
      yield* send(site, batchOf([event({ timestamp: at })]))
      yield* ago(10)
      yield* rollUp
      assert.strictEqual((yield* count).samples, 1)
      yield* send(site, batchOf([event({ timestamp: at })]))
      assert.strictEqual((yield* count).samples, 2)
      yield* ago(3)
      assert.strictEqual((yield* count).samples, 2)
      yield* rollUp
      assert.strictEqual((yield* count).samples, 2)
      // A little ahead of our clock.
      const ahead = new Date(Date.now() + 4 * 60_000)
      yield* send(site, batchOf([event({ timestamp: ahead })]))
      const until = new Date(Date.now() + 2 * hourMs)
      assert.strictEqual((yield* query(site, { until })).body.summary.samples, 3)
    })
  )

  it.effect("has neither rating nor score of few samples", () =>
    Effect.gen(function* () {
      const site = yield* measuredProject()
      const lcp = Effect.map(query(site), ({ body }) => ({
        ...body.summary.vitals.find(({ metric }: Vital) => metric === "LCP"),
        score: body.summary.score
      }))
      yield* send(site, batchOf(Array.from({ length: 9 }, () => event({ value: 2_000 }))))
      const few = yield* lcp
      assert.isNull(few.rating)
      assert.isNull(few.score)
      assert.closeTo(few.p75, 2_000, 20)
      yield* send(site, batchOf([event({ value: 2_000 })]))
      const enough = yield* lcp
      assert.strictEqual(enough.rating, "good")
      assert.isAbove(enough.score, 90)
    })
  )

  it.effect("is refused for windows and filters that there are not", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const site = yield* measuredProject()
      const day = (days: number) => new Date(Date.now() - days * 24 * hourMs)
      const refused: ReadonlyArray<readonly [body: object, status: number]> = [
        [{ from: day(31), until: day(0) }, 422],
        [{ from: day(31), granularity: "hour" }, 422],
        [{ from: day(91), granularity: "day" }, 422],
        [{ from: day(1), until: day(2) }, 422],
        [{ from: "yesterday" }, 422],
        [{ from: "-000001-01-01T00:00:00Z", until: "-000001-01-02T00:00:00Z" }, 422],
        [{ from: "0000-12-31T23:00:00Z", until: "0001-01-02T00:00:00Z" }, 422],
        [{ until: "0001-01-02T00:00:00Z" }, 422],
        [{ until: "9999-12-31T23:30:00Z" }, 422],
        [{ from: "+010000-01-01T00:00:00Z", until: "+010000-01-02T00:00:00Z" }, 422],
        [{ from: "0001-01-01T00:00:00Z", until: "0001-01-02T00:00:00Z" }, 200],
        [{ from: "9999-12-30T00:00:00Z", until: "9999-12-31T23:00:00Z" }, 200],
        [{ granularity: "minute" }, 422],
        [{ device: "tablet" }, 422],
        [{ route: "/a?b" }, 422],
        [{ route: "a" }, 422],
        [{ nonsense: 1 }, 422],
        [{ environment: "nowhere" }, 404]
      ]
      for (const [body, status] of refused)
        assert.strictEqual((yield* query(site, body)).status, status, JSON.stringify(body))
      assert.strictEqual((yield* query(site, { from: day(30), until: day(0) })).status, 200)
      assert.strictEqual((yield* query(site, { environment: "preview" })).status, 200)
      const elsewhere = yield* call("POST", `/v1/orgs/${site.org}/projects/nowhere/speed-insights/query`, {
        token: site.token,
        body: {}
      })
      assert.strictEqual(elsewhere.status, 404)
    })
  )

  it.effect("made-up routes do not fill the store: the sums of all count them", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* measuredProject()
      yield* sql`update speed_rollup set rolled_until = now() - interval '5 minutes'`
      const batches = Array.from({ length: 16 }, (_, i) =>
        batchOf(Array.from({ length: 150 }, (_, j) => event({ route: `/${i}-${j}`, eventId: `${j}` })))
      )
      for (const batch of batches) assert.strictEqual((yield* send(site, batch)).status, 202)
      yield* sql`update speed_batch set received_at = now() - interval '3 minutes' where received_at > now() - interval '2 minutes'`
      yield* rollUp
      const { project } = yield* idsOf(site)
      const [stored] = yield* sql<{ readonly rows: number }>`
        select count(*)::int as rows from speed_day where project_uid = ${project}::uuid`
      assert.strictEqual(stored?.rows, 2_001)
      assert.strictEqual((yield* query(site)).body.summary.samples, 2_400)
    })
  )

  it.effect("whoever sends much holds up neither the sums nor a report", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const site = yield* measuredProject()
      const { org, project, environment } = yield* idsOf(site)
      yield* sql`update speed_rollup set rolled_until = now() - interval '3 hours'`
      // 300 batches of 200, each of another route.
      yield* sql`
        insert into speed_batch (org_id, project_uid, environment_uid, day, batch_id, received_at, at, metric, value,
          route, device, navigation)
        select ${org}::uuid, ${project}::uuid, ${environment}::uuid, (now() at time zone 'UTC')::date, 'm' || b,
          now() - interval '2 hours' + b * interval '1 millisecond',
          array_fill(date_trunc('day', now(), 'UTC'), array[200]), array_fill(1::smallint, array[200]),
          array_fill(1000::real, array[200]), array(select '/' || b || '-' || i from generate_series(1, 200) i),
          array_fill(0::smallint, array[200]), array_fill(0::smallint, array[200])
        from generate_series(1, 300) b`
      const summed = sql<{ readonly samples: number; readonly rows: number }>`
        select coalesce(sum(samples) filter (where route = ''), 0)::int as samples, count(*)::int as rows
        from speed_day where project_uid = ${project}::uuid`
      const before = (yield* query(site)).body
      assert.strictEqual(before.summary.samples, 50_000)
      assert.strictEqual(before.routes.length, 50)
      assert.isTrue(yield* addSlice(sql))
      assert.deepStrictEqual(yield* summed, [{ samples: 20_000, rows: 2_001 }])
      yield* rollUp
      assert.deepStrictEqual(yield* summed, [{ samples: 60_000, rows: 2_001 }])
      assert.strictEqual((yield* query(site)).body.summary.samples, 60_000)
    })
  )

  it.effect("days that are over are dropped while measurements come", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { sql: asOwner } = yield* Plane
      const site = yield* measuredProject()
      yield* asOwner(`create table speed_batch_20200101 partition of speed_batch
        for values from ('2020-01-01') to ('2020-01-02')`)
      const sending = Effect.forEach(Array.from({ length: 200 }), () => send(site, batchOf([event()])), {
        concurrency: 10
      })
      const [answers] = yield* Effect.all([sending, keepDays, keepDays], { concurrency: 3 })
      assert.isTrue(answers.every(({ status }) => status === 202))
      assert.strictEqual((yield* query(site)).body.summary.samples, 200)
      const days = yield* sql<{ readonly name: string }>`
        select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'speed_batch'::regclass order by 1`
      const names = days.map(({ name }) => name)
      const today = new Date().toISOString().slice(0, 10).replaceAll("-", "")
      assert.include(names, `speed_batch_${today}`)
      assert.notInclude(names, "speed_batch_20200101")
    })
  )

  it.effect(
    "a day that is over and in use is dropped later, and the days to come are made all the same",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const { sql: asOwner } = yield* Plane
        yield* asOwner(`create table speed_batch_20200102 partition of speed_batch
        for values from ('2020-01-02') to ('2020-01-03')`)
        const [last] = yield* sql<{ readonly name: string }>`
        select 'speed_batch_' || to_char((now() at time zone 'UTC')::date + 7, 'YYYYMMDD') as name`
        yield* asOwner(`drop table ${last?.name}`)
        const there = sql<{ readonly old: boolean; readonly last: boolean }>`
        select to_regclass('speed_batch_20200102') is not null as old, to_regclass(${last?.name}) is not null as last`
        const [held, ended] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const reader = yield* Effect.forkScoped(
          sql.withTransaction(
            sql`select from speed_batch_20200102`.pipe(
              Effect.andThen(Deferred.succeed(held, undefined)),
              Effect.andThen(Deferred.await(ended))
            )
          )
        )
        yield* Deferred.await(held)
        yield* keepDays
        assert.deepStrictEqual(yield* there, [{ old: true, last: true }])
        yield* Deferred.succeed(ended, undefined)
        yield* Fiber.join(reader)
        yield* keepDays
        assert.deepStrictEqual(yield* there, [{ old: false, last: true }])
      })
  )
})
