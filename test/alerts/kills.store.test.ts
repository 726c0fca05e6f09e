/**
 * Evaluators that end in the middle of a round. A round is one statement, so there is a moment for each table that it
 * writes: somebody holds the table, the round stops there, and its connection is ended.
 */
import { inspect, isDeepStrictEqual } from "node:util"
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { inject } from "vitest"
import { evaluate } from "#src/alerts/evaluate.ts"
import { handOver } from "#src/alerts/hand-over.ts"
import { Db } from "#src/store/Db.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { asAdministrator } from "#test/setup/administrator.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { place, round, stack } from "./world.ts"

const tables = [
  "alert_turn",
  "alert",
  "webhook_event",
  "webhook_delivery",
  "alert_mail",
  "alert_history"
] as const
type Table = (typeof tables)[number]

/** Time passes until the next round is due. */
const due = (passed: number) =>
  Effect.flatMap(
    Db,
    ({ engine: sql }) => sql`
      update alert_turn set looked_at = now() - make_interval(secs => ${passed}::float8), due_at = now()`
  )

/** A round that has to be there before `table` is free, and is killed there. Other evaluators come at the same time. */
const killedAt = Effect.fn(function* (table: Table, passed = 15) {
  const { engine: sql } = yield* Db
  yield* due(passed)
  const [held, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  const holder = yield* Effect.forkChild(
    sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`lock table ${sql(table)} in share mode`
        yield* Deferred.succeed(held, undefined)
        yield* Deferred.await(release)
      })
    )
  )
  yield* Deferred.await(held)
  const rounds = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(evaluate))
  const waiting = sql<{ readonly pid: number }>`
    select distinct l.pid from pg_locks l join pg_class c on c.oid = l.relation
    where not l.granted and c.relname = ${table}
      and l.database = (select oid from pg_database where datname = current_database())`
  const found = yield* eventually("a round waits", waiting, (rows) => rows.length > 0)
  for (const { pid } of found)
    yield* Effect.orDie(asAdministrator(inject("databaseUrl"))(`select pg_terminate_backend(${pid})`))
  yield* eventually(
    "it is gone",
    waiting,
    (rows) => !rows.some((row) => found.some(({ pid }) => pid === row.pid))
  )
  yield* Deferred.succeed(release, undefined)
  yield* Fiber.join(holder)
  return yield* Effect.forEach(rounds, Fiber.await)
})

layer(stack, { excludeTestServices: true })("evaluators that are killed", (it) => {
  for (const table of tables)
    it.effect(`while they write ${table} have done nothing, and the next round does it once`, () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert({
          cooldownSeconds: 300,
          channels: [
            { kind: "webhook", destination: null },
            { kind: "mail", destination: null }
          ]
        })
        const seen = Effect.gen(function* () {
          const [mails] = yield* here.sql<{ readonly n: number }>`
            select count(*)::int as n from alert_mail where org_id = ${here.orgId}`
          return [yield* here.state(alert), yield* here.told, mails?.n, yield* here.changes(alert)]
        })
        yield* here.measure(uid, { "storage.capacity": 90 })
        const before = yield* seen
        const ends = yield* killedAt(table)
        assert.isTrue(ends.some(Exit.isFailure))
        const after = yield* seen
        // Whoever was not killed may have had the turn after that.
        const firing = ["firing" as const, ["alert.firing"], 1, ["firing"]]
        assert.isTrue(
          [before, firing].some((one) => isDeepStrictEqual(after, one)),
          inspect(after)
        )
        yield* round()
        yield* round()
        assert.deepStrictEqual(yield* seen, firing)

        yield* here.measure(uid, { "storage.capacity": 1 })
        yield* round()
        yield* killedAt(table, 60)
        yield* round(60)
        yield* round(60)
        assert.deepStrictEqual(yield* seen, [
          "ok",
          ["alert.firing", "alert.resolved"],
          2,
          ["firing", "resolved"]
        ])
      })
    )

  campaign(
    it.effect,
    "alert-kills",
    "whoever evaluates and is killed, each incident is told once and its end once",
    { roundMs: 300_000 },
    ({ seed, full }) =>
      Effect.gen(function* () {
        const random = new Seeded(seed)
        const here = yield* place
        const channels = [
          { kind: "webhook", destination: null },
          { kind: "mail", destination: null }
        ]
        const uids = yield* Effect.forEach(["Database", "Cache", "Queue"], (kind) =>
          here.resource(kind, "main")
        )
        const alerts = yield* Effect.forEach([0, 0, 30, 60], (durationSeconds, index) =>
          here.alert(
            {
              channels,
              cooldownSeconds: 300,
              condition: { signal: "cpu.percent", threshold: 50, durationSeconds }
            },
            `alert ${index}`
          )
        )
        // Less than an alert with mail may have, so that more is told.
        yield* here.sql`update alert set config = jsonb_set(config, '{cooldownSeconds}', '0')
          where uid = any (${alerts.filter((_, index) => index % 2 === 0)}::uuid[])`
        let kills = 0
        for (let step = 0; step < (full ? 400 : 20); step++) {
          for (const uid of uids)
            if (random.chance(0.7))
              yield* here.measure(
                uid,
                { "cpu.percent": random.chance(0.4) ? 90 : 10 },
                random.chance(0.2) ? 600 : 0
              )
          const alert = random.pick(alerts) ?? uuid()
          const ref = { orgId: here.orgId, uid: alert }
          if (random.chance(0.1))
            yield* here.alerts.silence(ref, { seconds: random.int(0, 1), reason: null }, actor)
          if (random.chance(0.1)) yield* here.alerts.acknowledge(ref, actor)
          const passed = random.pick([-30, 15, 30, 60, 3_600]) ?? 15
          if (random.chance(0.25)) {
            kills++
            // What it has nothing to write to it passes, so only what every round writes is waited for.
            yield* killedAt("alert_turn", passed)
          } else {
            yield* due(passed)
            yield* Effect.forEach([1, 2], () => Effect.exit(evaluate), { concurrency: "unbounded" })
          }
          yield* handOver
        }
        const wrong = yield* here.sql`
          with h as (select * from alert_history where org_id = ${here.orgId}),
          incident as (
            select alert_uid, incident_id, count(*) filter (where change = 'firing') as fired,
              count(*) filter (where change in ('firing', 'notified') and event_id is not null) as told,
              count(*) filter (where change = 'resolved') as resolved,
              count(*) filter (where change = 'resolved' and event_id is not null) as told_over
            from h where incident_id is not null group by 1, 2
          )
          select 'incident' as what, to_jsonb(i) as it from incident i
          where fired <> 1 or told > 1 or resolved > 1 or told_over > told or (resolved = 1 and told_over <> told)
          union all
          select 'event', to_jsonb(e) from webhook_event e where org_id = ${here.orgId}
            and (select count(*) from h where h.event_id = e.id) <> 1
          union all
          select 'entry', to_jsonb(h) from h where event_id is not null and (
            (select count(*) from webhook_delivery d where d.org_id = h.org_id and d.event_id = h.event_id) <> 1
            or (select count(*) from alert_mail m where m.org_id = h.org_id and m.event_id = h.event_id) <> 1)`
        assert.deepStrictEqual(wrong, [])
        const told = yield* here.told
        assert.isAbove(told.length, 0)
        assert.isAbove(kills, 0)
      })
  )
})
