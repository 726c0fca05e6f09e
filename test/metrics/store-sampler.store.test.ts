import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { MetricSamples, type Values } from "#src/metrics/MetricSamples.ts"
import { makeLook, subjects } from "#src/metrics/store/sampler.ts"
import { take } from "#src/metrics/turns.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const look = makeLook(20_000)

/** An environment with a queue, a cron job and a database, as their reconcilers leave them. */
const place = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  const [queue, cron, database] = [uuid(), uuid(), uuid()]
  const of = (kind: string, uid: string) =>
    ({
      action: "create",
      uid,
      kind,
      projectId,
      environment: "production",
      name: kind.toLowerCase(),
      parentUid: production,
      spec: {},
      managedBy: "api"
    }) as const
  yield* resources.write(orgId, [of("Queue", queue), of("Cron", cron), of("Database", database)], actor)
  yield* sql`insert into queue (org_id, uid, environment_uid, fence, paused, retention_seconds, max_batch_size,
      max_batch_wait_seconds, max_retries, retry_delay_seconds)
    values (${orgId}, ${queue}, ${production}, 1, false, 3600, 10, 0, 3, 30)`
  yield* sql`insert into cron_schedule (org_id, uid, environment_uid, name, config, fence)
    values (${orgId}, ${cron}, ${production}, 'cron', '{}', 1)`
  yield* sql`insert into edge_site (org_id, environment_uid, label) values (${orgId}, ${production}, ${production})
    on conflict do nothing`
  const seen = (uid: string) =>
    Effect.map(
      sql<{ readonly values: Values }>`
        select values from metric_now where org_id = ${orgId}::uuid and uid = ${uid}::uuid and source = 'store'`,
      ([row]) => row?.values
    )
  return { sql, orgId, production, queue, cron, database, seen }
})

layer(
  Layer.mergeAll(MetricSamples.layer, subjects, Resources.layer).pipe(
    Layer.provide(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  { excludeTestServices: true }
)("what the store measures", (it) => {
  it.effect("of a queue: what waits, what it holds, and the age of the oldest that is not given up", () =>
    Effect.gen(function* () {
      const { sql, orgId, queue, seen } = yield* place
      yield* look
      assert.deepStrictEqual(yield* seen(queue), {
        "queue.backlog": 0,
        "queue.backlog_messages": 0,
        "queue.oldest_message_age_seconds": 0
      })
      yield* sql`insert into queue_message (org_id, queue_uid, id, body, due_at, entered_at, failed)
        select ${orgId}::uuid, ${queue}::uuid, ('0190c0de-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{}', now(),
          now() - make_interval(secs => 1000 - n), n <= 20
        from generate_series(1, 100) n`
      yield* look
      const values = yield* seen(queue)
      assert.strictEqual(values?.["queue.backlog"], 80)
      assert.strictEqual(values?.["queue.backlog_messages"], 100)
      // More than are counted were given up.
      yield* sql`insert into queue_message (org_id, queue_uid, id, body, due_at, entered_at, failed)
        select ${orgId}::uuid, ${queue}::uuid, gen_random_uuid(), '{}', now(), now(), true from generate_series(1, 10050)`
      yield* look
      assert.deepInclude(yield* seen(queue), { "queue.backlog": 80, "queue.backlog_messages": 10_150 })
      // The 21st message is the first that was not given up.
      assert.approximately(values?.["queue.oldest_message_age_seconds"] ?? 0, 979, 30)
    })
  )

  it.effect("of a cron job: runs of the last hour that failed or took too long", () =>
    Effect.gen(function* () {
      const { sql, orgId, cron, seen } = yield* place
      yield* look
      assert.deepStrictEqual(yield* seen(cron), { "cron.failures": 0 })
      for (const [status, ended] of [
        ["failed", "1 minute"],
        ["timed_out", "59 minutes"],
        ["failed", "61 minutes"],
        ["succeeded", "1 minute"],
        ["skipped", "1 minute"]
      ] as const) {
        yield* sql`insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, status, finished_at)
          values (${orgId}, ${uuid()}, ${cron}, 'manual', now(), ${status}, now() - ${ended}::interval)`
      }
      yield* look
      assert.deepStrictEqual(yield* seen(cron), { "cron.failures": 2 })
    })
  )

  it.effect(
    "of a database: whether it is ready, unless it is being made or nobody looks; and its archive",
    () =>
      Effect.gen(function* () {
        const { sql, orgId, database, seen } = yield* place
        const ready = (status: string, phase: string) =>
          sql`update resource set phase = ${phase},
            conditions = ${sql.json([{ type: "Ready", status, reason: "ServerDown" }])}
          where org_id = ${orgId} and uid = ${database}`
        yield* look
        assert.isUndefined(yield* seen(database))
        yield* ready("true", "ready")
        yield* look
        assert.deepStrictEqual(yield* seen(database), { "database.unavailable": 0 })
        yield* ready("false", "updating")
        const lineage = uuid()
        yield* sql`insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed)
        values (${orgId}, ${lineage}, ${database}, 'k', '')`
        yield* look
        assert.deepStrictEqual(yield* seen(database), {
          "database.unavailable": 1,
          "backup.archive_failed": 0
        })
        yield* sql`update backup_lineage set trouble = 'ArchivingFailing' where lineage = ${lineage}`
        yield* sql`insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256,
          stored_sha256, flushed_at)
        values (${orgId}, ${lineage}, '000000010000000000000001', 'k', 1, 1, '', '', now() - interval '100 seconds'),
          (${orgId}, ${lineage}, '000000010000000000000002', 'k', 1, 1, '', '', now() - interval '50 seconds')`
        yield* sql`update work set due_at = now() - interval '3 minutes' where uid = ${database}`
        yield* look
        const values = yield* seen(database)
        assert.hasAllKeys(values, ["backup.archive_failed", "backup.archive_lag_seconds"])
        assert.strictEqual(values?.["backup.archive_failed"], 1)
        assert.approximately(values?.["backup.archive_lag_seconds"] ?? 0, 50, 30)
      })
  )

  it.effect("of a database in doubt: what its machine has seen of its server", () =>
    Effect.gen(function* () {
      const { sql, orgId, database, seen } = yield* place
      const { record } = yield* MetricSamples
      const unavailable = Effect.fn(function* (
        ready: readonly [status: string, reason: string],
        synced: readonly [status: string, reason: string] = ["false", ready[1]]
      ) {
        const conditions = [
          { type: "Ready", status: ready[0], reason: ready[1] },
          { type: "Synced", status: synced[0], reason: synced[1] }
        ]
        yield* sql`update resource set phase = 'updating', conditions = ${sql.json(conditions)}
          where org_id = ${orgId} and uid = ${database}`
        yield* sql`delete from metric_now where uid = ${database} and source = 'store'`
        yield* look
        return (yield* seen(database))?.["database.unavailable"]
      })
      const onMachine = Effect.fn(function* (values: Values) {
        yield* sql`delete from metric_now where uid = ${database}`
        yield* record([{ orgId, uid: database, source: "host", at: new Date(), values }])
      })
      const failedLook = unavailable(["unknown", "ReconcileFailed"])
      const invalid = unavailable(["false", "InvalidSpec"])
      for (const reason of ["NotAnswering", "DataLost"])
        assert.strictEqual(yield* unavailable(["false", reason]), 1)
      // A deadline that has passed takes the place of the reason.
      assert.strictEqual(yield* unavailable(["false", "DeadlineExceeded"], ["false", "ServerDown"]), 1)
      assert.strictEqual(yield* unavailable(["false", "DeadlineExceeded"], ["true", "Converged"]), 1)
      assert.isUndefined(yield* failedLook)
      assert.isUndefined(yield* invalid)

      yield* onMachine({ "database.connections": 0, "runtime.uptime_seconds": 9 })
      assert.strictEqual(yield* failedLook, 0)
      assert.strictEqual(yield* invalid, 0)
      assert.strictEqual(yield* unavailable(["false", "ServerDown"]), 1)
      yield* onMachine({ "disk.used_bytes": 1, "runtime.uptime_seconds": 9 })
      assert.isUndefined(yield* failedLook)
      yield* onMachine({ "disk.used_bytes": 1 })
      assert.strictEqual(yield* failedLook, 1)
      yield* sql`update metric_now set at = now() - interval '2 minutes' where uid = ${database}`
      assert.isUndefined(yield* failedLook)
    })
  )

  it.effect("of the other features while one of them does not answer", () =>
    Effect.gen(function* () {
      const { sql, queue, cron, database, seen } = yield* place
      const outside = yield* Effect.context<Effect.Services<ReturnType<typeof makeLook>>>()
      yield* sql`update resource set phase = 'ready', conditions = '[{"type": "Ready", "status": "true"}]'
        where uid = ${database}`
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`lock table cron_schedule in access exclusive mode`
          // In a fiber of its own, or it would be in this transaction.
          yield* Effect.promise(() => Effect.runPromiseWith(outside)(makeLook(1_500)))
        })
      )
      assert.isUndefined(yield* seen(cron))
      assert.containsAllKeys(yield* seen(queue), ["queue.backlog"])
      assert.containsAllKeys(yield* seen(database), ["database.unavailable"])
    })
  )

  it.effect("failures of cron jobs are found by an index of their own", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const plan = yield* sql.withTransaction(
        Effect.andThen(
          sql`set local enable_seqscan = off`,
          sql`explain select count(*) from cron_run
            where finished_at > now() - interval '1 hour' and status in ('failed', 'timed_out')`
        )
      )
      assert.include(JSON.stringify(plan), "cron_run_failed")
    })
  )

  it.effect("of an environment: requests and errors of the last full minute, while an edge is at work", () =>
    Effect.gen(function* () {
      const { sql, orgId, production, seen } = yield* place
      yield* look
      assert.isUndefined(yield* seen(production))
      yield* sql`insert into edge_node (id, address, https_port, alive_until)
        values (${uuid()}, '127.0.0.1', 1, now() + interval '5 minutes')`
      yield* look
      assert.deepStrictEqual(yield* seen(production), { "http.requests": 0, "http.errors": 0 })
      // The test may run into the next minute: each of them has as many.
      yield* sql`insert into edge_request_minute (org_id, environment_uid, minute, status_class, requests, bytes_in,
          bytes_out, duration_ms, durations)
        select ${orgId}::uuid, ${production}::uuid, date_trunc('minute', now()) + make_interval(mins => m), c, 10 + c, 0, 0,
          0, '{}' from generate_series(-2, 1) m, unnest(array[0, 2, 5]) c`
      yield* look
      assert.deepStrictEqual(yield* seen(production), { "http.requests": 37, "http.errors": 25 })
    })
  )

  it.effect("is dated by the clock of the store", () =>
    Effect.gen(function* () {
      const { sql, queue } = yield* place
      const clock = yield* Clock.Clock
      const late = () => clock.currentTimeMillisUnsafe() - 3_600_000
      yield* Effect.provideService(look, Clock.Clock, {
        ...clock,
        sleep: (duration) => clock.sleep(duration),
        currentTimeMillisUnsafe: late,
        currentTimeMillis: Effect.sync(late),
        currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe(),
        currentTimeNanos: clock.currentTimeNanos
      })
      const [row] = yield* sql<{ readonly fresh: boolean }>`
        select at > now() - interval '1 minute' as fresh from metric_now where uid = ${queue}`
      assert.isTrue(row?.fresh)
    })
  )

  it.effect("is measured by one process in an interval, also when a clock was set back", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const turn = { name: "test", does: "test", seconds: 3_600 }
      const mine = Effect.map(take(sql, turn), (taken) => taken.mine)
      const takes = Effect.all([mine, mine, mine], { concurrency: 3 })
      assert.sameMembers(yield* takes, [true, false, false])
      yield* sql`update metric_turn set at = now() + interval '10 hours' where name = 'test'`
      assert.sameMembers(yield* takes, [true, false, false])
    })
  )
})
