import { assert, layer } from "@effect/vitest"
import { Cron } from "croner"
import * as Effect from "effect/Effect"
import { vi } from "vitest"
import { Crons } from "#src/crons/Crons.ts"
import { DueRuns } from "#src/crons/DueRuns.ts"
import { Db } from "#src/store/Db.ts"
import { type Received, type Reply, receiver } from "./receiver.ts"
import { type App, makeApp, makeJob, runsOf, startRunner, until, world } from "./world.ts"

/** An app that lets some wait for ever. */
const hanging = receiver(({ path }: Received): Reply | undefined =>
  path === "/hang" ? { status: 200, afterMs: 600_000 } : undefined
)
const pathOf = (path: string) => ({ target: { kind: "http", path }, timeoutSeconds: 600 })
const jobsOf = (app: App, count: number, values: object, at: number) =>
  Effect.forEach(Array.from({ length: count }), () => makeJob(app, values, at), { concurrency: 8 })

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("many runs", (it) => {
  it.effect("of apps that never answer leave room for others, whose runs begin and end", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const web = yield* hanging
      const apps = yield* Effect.all([makeApp(web.origin), makeApp(web.origin), makeApp(web.origin)])
      const [first, second, third] = apps
      const at = Date.now()
      yield* jobsOf(first, 30, pathOf("/hang"), at)
      yield* jobsOf(second, 30, pathOf("/hang"), at)
      yield* startRunner({ concurrency: 24, orgConcurrency: 12, batch: 10 })
      const under = Effect.orDie(sql<{ readonly org: string; readonly count: number }>`
        select org_id as org, count(*)::int as count from cron_run
        where lease_token is not null and org_id in (${first.orgId}, ${second.orgId}) group by 1`)
      const total = (rows: ReadonlyArray<{ readonly count: number }>) =>
        rows.reduce((sum, { count }) => sum + count, 0)
      yield* until(under, (rows) => total(rows) >= 12)
      const late = yield* jobsOf(third, 20, pathOf("/quick"), Date.now())
      for (const job of late) yield* until(runsOf(job), ([run]) => run?.status === "succeeded")
      const held = yield* under
      for (const { count } of held) assert.isAtMost(count, 12)
      assert.isAtMost(total(held), 23)
      for (const { orgId } of apps) {
        yield* Effect.orDie(sql`delete from cron_schedule where org_id = ${orgId}`)
        yield* Effect.orDie(sql`delete from cron_run where org_id = ${orgId}`)
      }
    }).pipe(Effect.scoped)
  )

  it.effect("of an organization that has no room are skipped when it is too late", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const web = yield* hanging
      const app = yield* makeApp(web.origin)
      const jobs = yield* jobsOf(app, 12, pathOf("/hang"), Date.now())
      yield* startRunner({ concurrency: 8, orgConcurrency: 4, batch: 4 })
      yield* until(
        Effect.sync(() => web.received.length),
        (count) => count >= 4
      )
      yield* Effect.orDie(sql`update cron_run set due_at = due_at - interval '1 hour'
        where org_id = ${app.orgId} and status = 'pending'`)
      const ended = Effect.orDie(sql<{ readonly status: string; readonly reason: string }>`
        select status, reason from cron_run where org_id = ${app.orgId} and finished_at is not null`)
      const skipped = yield* until(ended, (rows) => rows.length >= 8)
      assert.strictEqual(jobs.length - skipped.length, 4)
      for (const { status, reason } of skipped) {
        assert.strictEqual(status, "skipped")
        assert.include(reason, "too many other runs were going on")
      }
      assert.strictEqual(web.received.length, 4)
      yield* Effect.orDie(sql`delete from cron_schedule where org_id = ${app.orgId}`)
      yield* Effect.orDie(sql`delete from cron_run where org_id = ${app.orgId}`)
    }).pipe(Effect.scoped)
  )

  it.effect("that were missed for a month are not counted one by one", () =>
    Effect.gen(function* () {
      const due = yield* DueRuns
      const { engine: sql } = yield* Db
      const app = yield* makeApp(undefined)
      const month = 30 * 24 * 3_600_000
      const jobs = yield* jobsOf(app, 50, { schedule: "* * * * *" }, Date.now() - month)
      const steps = vi.spyOn(Cron.prototype, "nextRun")
      assert.strictEqual(yield* due.plan(500), 50)
      const walked = steps.mock.calls.length
      steps.mockRestore()
      // The next time from the missed one on, to see whether there were more, and the next from now on.
      assert.isAtMost(walked, jobs.length * 4)
      for (const job of jobs) {
        const runs = yield* runsOf(job)
        assert.deepStrictEqual(
          runs.map(({ status }) => status),
          ["skipped"]
        )
        assert.match(runs[0]?.reason ?? "", /^All times from .* to .* were missed: no control plane/)
      }
      const [next] = yield* Effect.orDie(sql<{ readonly at: Date }>`
        select min(next_at) as at from cron_schedule where org_id = ${app.orgId}`)
      assert.isAbove(next?.at.getTime() ?? 0, Date.now() - 60_000)
      // The only one that was missed is named as one.
      const yearly = yield* makeJob(app, {}, Date.now() - 3_600_000)
      yield* due.plan(500)
      assert.match((yield* runsOf(yearly))[0]?.reason ?? "", /^Its time was missed: /)
      yield* Effect.orDie(sql`delete from cron_schedule where org_id = ${app.orgId}`)
    })
  )

  it.effect("of a job that was busy for months go when it is deleted, all of them in one step", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const crons = yield* Crons
      const app = yield* makeApp(undefined)
      const job = yield* makeJob(app)
      const other = yield* makeJob(app)
      const fill = (uid: string, count: number) =>
        Effect.orDie(sql`
          insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, status, finished_at)
          select ${app.orgId}, gen_random_uuid(), ${uid}, 'schedule', now() - make_interval(mins => i), 'succeeded', now()
          from generate_series(1, ${count}::int) i`)
      yield* fill(job.uid, 21_000)
      yield* fill(other.uid, 5)
      assert.isTrue(yield* crons.remove({ ...job, fence: 2n }))
      assert.isFalse(yield* crons.remains(job))
      assert.strictEqual((yield* runsOf(other)).length, 5)
    })
  )
})
