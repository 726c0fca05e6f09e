import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { Webhook } from "standardwebhooks"
import { Crons } from "#src/crons/Crons.ts"
import { DueRuns } from "#src/crons/DueRuns.ts"
import { invoke, retryDelay } from "#src/crons/invoke.ts"
import { CronOptions } from "#src/crons/options.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { receiver } from "./receiver.ts"
import { ended, makeApp, makeJob, runsOf, startRunner, trigger, until, world } from "./world.ts"

/** Nobody holds any. */
const anyRoom = makeFairShare(1_000).rooms()
const once = { maxAttempts: 1 }
const thrice = { maxAttempts: 3, initialDelaySeconds: 1, maxDelaySeconds: 1 }

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("runs", (it) => {
  it.effect("of many jobs at one time are made once each by three runners, signed, with the envelope", () =>
    Effect.gen(function* () {
      const web = yield* receiver()
      const app = yield* makeApp(web.origin)
      const at = Math.ceil(Date.now() / 1000) * 1000 + 1_000
      const jobs = yield* Effect.forEach(
        Array.from({ length: 80 }),
        () => makeJob(app, { target: { kind: "http", path: "/jobs", body: { a: [1] } } }, at),
        { concurrency: 8 }
      )
      yield* Effect.all([startRunner(), startRunner(), startRunner()])
      yield* until(
        Effect.sync(() => web.received.length),
        (count) => count >= 80
      )
      yield* Effect.forEach(jobs, (job) => until(runsOf(job), ([run]) => run?.status === "succeeded"))
      assert.strictEqual(web.received.length, 80)
      const { secrets } = yield* (yield* Invocations).target(app.orgId, app.production)
      const [secret] = secrets
      const webhook = new Webhook(secret === undefined ? "" : Redacted.value(secret))
      for (const { headers, text, at: arrived } of web.received) {
        assert.isAtLeast(arrived, at)
        webhook.verify(text, {
          "webhook-id": String(headers["webhook-id"]),
          "webhook-timestamp": String(headers["webhook-timestamp"]),
          "webhook-signature": String(headers["webhook-signature"])
        })
        const envelope = JSON.parse(text)
        const job = jobs.find(({ uid }) => uid === envelope.cron.id)
        const deadline = Date.parse(envelope.deadlineAt) - 300_000
        assert.isAtLeast(deadline, at)
        assert.isAtMost(deadline, arrived)
        assert.deepStrictEqual(envelope, {
          id: headers["webhook-id"],
          type: "cron.invocation",
          cron: { id: job?.uid, name: job?.name },
          scheduledAt: new Date(at).toISOString(),
          attempt: 1,
          maxAttempts: 3,
          deadlineAt: envelope.deadlineAt,
          body: { a: [1] }
        })
      }
      assert.strictEqual(new Set(web.received.map(({ headers }) => headers["webhook-id"])).size, 80)
    })
  )

  it.effect("are tried again after 408, 429, 5xx and network faults, and not after other answers", () =>
    Effect.gen(function* () {
      const answers = [503, 429, 200]
      const web = yield* receiver(({ path }, count) =>
        path === "/flaky" ? { status: answers[count - 1] ?? 500 } : { status: Number(path.slice(1)) }
      )
      const app = yield* makeApp(web.origin)
      yield* startRunner()
      const flaky = yield* makeJob(app, { retry: thrice, target: { kind: "http", path: "/flaky" } })
      const good = yield* ended(flaky, yield* trigger(flaky))
      assert.strictEqual(good.status, "succeeded")
      assert.deepStrictEqual(
        good.attempts.map(({ statusCode, error }) => [statusCode, error]),
        [
          [503, "The app answered 503"],
          [429, "The app answered 429"],
          [200, null]
        ]
      )
      const sent = web.received.map(({ text }) => JSON.parse(text))
      assert.deepStrictEqual(
        sent.map(({ attempt, maxAttempts }) => [attempt, maxAttempts]),
        [
          [1, 3],
          [2, 3],
          [3, 3]
        ]
      )
      assert.strictEqual(new Set(sent.map(({ id }) => id)).size, 1)
      for (const [status, tries] of [
        [408, 2],
        [500, 2],
        [302, 1],
        [400, 1],
        [404, 1],
        [410, 1]
      ] as const) {
        const job = yield* makeJob(app, {
          retry: { ...thrice, maxAttempts: 2 },
          target: { kind: "http", path: `/${status}` }
        })
        const run = yield* ended(job, yield* trigger(job))
        assert.deepStrictEqual([run.status, run.attempts.length], ["failed", tries], String(status))
        assert.strictEqual(run.reason, `The app answered ${status}`)
      }
      const nowhere = yield* makeApp("http://127.0.0.1:9")
      const lost = yield* makeJob(nowhere, { retry: { ...thrice, maxAttempts: 2 } })
      const run = yield* ended(lost, yield* trigger(lost))
      assert.deepStrictEqual([run.status, run.attempts.length], ["failed", 2])
      assert.isNull(run.attempts[0]?.statusCode)
      const silent = yield* makeApp(undefined)
      const mute = yield* makeJob(silent)
      const none = yield* ended(mute, yield* trigger(mute))
      assert.strictEqual(none.attempts.length, 1)
      assert.include(none.reason ?? "", "no origin")
    })
  )

  it.effect("may publish to a queue, once for all attempts", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const app = yield* makeApp(undefined)
      const [queue, gone] = [uuid(), uuid()]
      const makeQueue = (uid: string, name: string) =>
        ({
          action: "create",
          uid,
          kind: "Queue",
          projectId: app.projectId,
          environment: "production",
          name,
          parentUid: app.production,
          spec: {},
          managedBy: "api"
        }) as const
      yield* (yield* Resources).write(app.orgId, [makeQueue(queue, "jobs"), makeQueue(gone, "gone")], actor)
      const job = yield* makeJob(app, {
        retry: thrice,
        target: { kind: "queue", queue: "jobs", body: { n: 7 } }
      })
      const id = yield* trigger(job)
      // A process publishes and vanishes before it has written that down.
      const [claimed] = (yield* (yield* DueRuns).claim(10, anyRoom)).claimed
      if (claimed === undefined) return assert.fail("nothing was due")
      assert.strictEqual((yield* invoke(claimed)).status, "succeeded")
      yield* Effect.orDie(sql`update cron_run set due_at = now() where id = ${id}`)
      yield* startRunner()
      const run = yield* ended(job, id)
      assert.deepStrictEqual([run.status, run.attempts.length], ["succeeded", 2])
      const messages = yield* Effect.orDie(sql<{ readonly body: string }>`
        select body from queue_message where queue_uid = ${queue}`)
      assert.deepStrictEqual(
        messages.map(({ body }) => JSON.parse(body)),
        [{ n: 7 }]
      )
      // Refused for now: the next attempt may find room.
      yield* Effect.orDie(sql`insert into queue_backlog (org_id, queue_uid, part, messages, bytes)
        values (${app.orgId}, ${queue}, 99, 1000000, 0)`)
      const rested = { maxAttempts: 2, initialDelaySeconds: 3_600, maxDelaySeconds: 3_600 }
      const full = yield* makeJob(app, { retry: rested, target: { kind: "queue", queue: "jobs" } })
      const refused = yield* trigger(full)
      yield* until(runsOf(full), ([run]) => (run?.attempts.length ?? 0) > 0)
      yield* Effect.orDie(sql`delete from queue_backlog where part = 99`)
      yield* Effect.orDie(sql`update cron_run set due_at = now() where id = ${refused}`)
      const taken = yield* ended(full, refused)
      assert.strictEqual(taken.status, "succeeded")
      assert.include(taken.attempts[0]?.error ?? "", "The queue may hold 1000000 messages")
      const lost = yield* makeJob(app, { target: { kind: "queue", queue: "gone" } })
      // As when the queue and the job go together, with their project, and the job is the later one.
      yield* Effect.orDie(sql`update resource set deleted_at = now() where uid = ${gone}`)
      const failed = yield* ended(lost, yield* trigger(lost))
      assert.deepStrictEqual([failed.status, failed.attempts.length], ["failed", 1])
      assert.include(failed.reason ?? "", 'no queue "gone"')
    })
  )

  it.effect("that take too long end as timed out", () =>
    Effect.gen(function* () {
      const web = yield* receiver(() => ({ status: 200, afterMs: 10_000 }))
      const app = yield* makeApp(web.origin)
      yield* startRunner()
      const job = yield* makeJob(app, { retry: once, timeoutSeconds: 1 })
      const run = yield* ended(job, yield* trigger(job))
      assert.deepStrictEqual([run.status, run.attempts.length], ["timed_out", 1])
      // If it came so far within that second.
      yield* until(Effect.sync(web.aborted), (count) => count === web.begun())
    })
  )

  it.effect("beside an earlier one are made, skipped or put in its place, as the job says", () =>
    Effect.gen(function* () {
      // None is answered until it is known what became of the others.
      let answer = () => {}
      let when = Promise.resolve()
      const hold = () => {
        when = new Promise<void>((resolve) => {
          answer = resolve
        })
      }
      const web = yield* receiver(() => ({ status: 200, when }))
      const app = yield* makeApp(web.origin)
      // Two processes: it must not matter who holds what.
      yield* Effect.all([startRunner(), startRunner()])
      for (const [concurrencyPolicy, first, second, calls] of [
        ["allow", "succeeded", "succeeded", 2],
        ["skip", "succeeded", "skipped", 1],
        ["replace", "replaced", "succeeded", 2]
      ] as const) {
        const before = web.received.length
        const abortedBefore = web.aborted()
        hold()
        const job = yield* makeJob(app, { concurrencyPolicy })
        const one = yield* trigger(job)
        yield* until(
          Effect.sync(() => web.received.length),
          (count) => count > before
        )
        const two = yield* trigger(job)
        yield* concurrencyPolicy === "skip"
          ? ended(job, two)
          : until(
              Effect.sync(() => web.received.length),
              (count) => count > before + 1
            )
        if (concurrencyPolicy === "replace") yield* ended(job, one)
        answer()
        const runs = [yield* ended(job, one), yield* ended(job, two)]
        assert.deepStrictEqual(
          runs.map(({ status }) => status),
          [first, second],
          concurrencyPolicy
        )
        assert.strictEqual(web.received.length - before, calls, concurrencyPolicy)
        if (concurrencyPolicy === "skip") assert.include(runs[1]?.reason ?? "", one)
        if (concurrencyPolicy === "replace") {
          assert.include(runs[0]?.reason ?? "", two)
          // The request itself was given up.
          yield* until(Effect.sync(web.aborted), (count) => count === abortedBefore + 1)
        }
      }
      // Many at one moment: one is made.
      const before = web.received.length
      hold()
      const job = yield* makeJob(app, { concurrencyPolicy: "skip" })
      const ids = yield* Effect.forEach(Array.from({ length: 12 }), () => trigger(job), { concurrency: 12 })
      yield* until(
        runsOf(job),
        (runs) => runs.filter(({ finishedAt }) => finishedAt !== null).length === ids.length - 1
      )
      answer()
      const runs = yield* Effect.forEach(ids, (id) => ended(job, id))
      assert.strictEqual(runs.filter(({ status }) => status === "succeeded").length, 1)
      assert.strictEqual(runs.filter(({ status }) => status === "skipped").length, 11)
      assert.strictEqual(web.received.length - before, 1)
    })
  )

  it.effect("that nobody made in time are skipped, and it is said which", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const web = yield* receiver()
      const app = yield* makeApp(web.origin)
      const minute = Math.floor(Date.now() / 60_000) * 60_000
      // Nobody planned for ten minutes.
      const past = (minutes: number) => new Date(minute - minutes * 60_000).getUTCMinutes()
      // Its next time is far off: it would be made.
      const schedule = `${past(10)},${past(5)} * * * *`
      const unplanned = yield* makeJob(app, { schedule }, minute - 600_000)
      // Planned, and nobody there when its time came.
      const planned = yield* makeJob(app)
      const late = new Date(minute - 120_000)
      yield* Effect.orDie(sql`
        insert into cron_run (org_id, id, cron_uid, trigger, scheduled_at, due_at)
        values (${app.orgId}, ${crypto.randomUUID()}, ${planned.uid}, 'schedule', ${late}, ${late})`)
      // A little late is made all the same.
      const soon = yield* makeJob(app, {}, Date.now() - 5_000)
      yield* startRunner()
      yield* until(runsOf(soon), ([run]) => run?.status === "succeeded")
      const [missed] = yield* until(runsOf(unplanned), (runs) => runs.length > 0)
      assert.deepStrictEqual([missed?.status, missed?.scheduledAt.getTime()], ["skipped", minute - 600_000])
      assert.match(missed?.reason ?? "", /^All times from .* were missed/)
      const [skipped] = yield* until(runsOf(planned), ([run]) => run?.finishedAt != null)
      assert.strictEqual(skipped?.status, "skipped")
      assert.include(skipped?.reason ?? "", "within 60 s of its time")
      const [next] = yield* Effect.orDie(sql<{ readonly at: Date }>`
        select min(scheduled_at) as at from (
          select next_at as scheduled_at from cron_schedule where uid = ${unplanned.uid}
          union all select scheduled_at from cron_run where cron_uid = ${unplanned.uid} and status = 'pending') t`)
      assert.isAtLeast(next?.at.getTime() ?? 0, minute)
      assert.strictEqual(web.received.length, 1)
    })
  )

  it.effect("of a process that vanished go on elsewhere, and it writes no more", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const web = yield* receiver()
      const app = yield* makeApp(web.origin)
      const patient = yield* makeJob(app, { retry: thrice })
      const single = yield* makeJob(app, { retry: once })
      const ids = [yield* trigger(patient), yield* trigger(single)]
      // This process claims and is never heard of again.
      const dead = yield* DueRuns
      const { claimed } = yield* dead.claim(100, anyRoom)
      assert.sameMembers(
        claimed.map(({ id }) => id),
        ids
      )
      yield* Effect.orDie(sql`update cron_run set due_at = now() where lease_token is not null`)
      yield* startRunner()
      const run = yield* ended(patient, ids[0] ?? "")
      assert.strictEqual(run.status, "succeeded")
      assert.deepStrictEqual(
        run.attempts.map(({ statusCode }) => statusCode),
        [null, 200]
      )
      const given = yield* ended(single, ids[1] ?? "")
      assert.deepStrictEqual([given.status, given.attempts.length], ["failed", 1])
      assert.include(given.reason ?? "", "ended before there was an answer")
      yield* dead.record(
        claimed.map((one) => ({ claimed: one, attempts: [], status: "failed", reason: "stale", delay: 0 }))
      )
      const after = yield* ended(patient, ids[0] ?? "")
      assert.strictEqual(after.status, "succeeded")
      assert.strictEqual((yield* dead.extend(claimed)).size, 0)
    })
  )

  it.effect("stop when their job is deleted, and a job that is switched off plans none", () =>
    Effect.gen(function* () {
      const crons = yield* Crons
      const web = yield* receiver(() => ({ status: 200, afterMs: 20_000 }))
      const app = yield* makeApp(web.origin)
      yield* startRunner()
      const job = yield* makeJob(app)
      yield* trigger(job)
      yield* until(
        Effect.sync(() => web.received.length),
        (count) => count === 1
      )
      yield* crons.remove({ ...job, fence: 1n })
      assert.isFalse(yield* crons.remains(job))
      yield* until(Effect.sync(web.aborted), (count) => count === 1)

      const { aheadMs } = yield* CronOptions
      const at = Date.now() + aheadMs - 1_000
      const planned = yield* makeJob(app, {}, at)
      yield* until(
        Effect.map(
          Effect.flatMap(Db, ({ engine: sql }) =>
            Effect.orDie(sql`select 1 from cron_run where cron_uid = ${planned.uid} and status = 'pending'`)
          ),
          (rows) => rows.length
        ),
        (count) => count === 1
      )
      yield* crons.put(
        {
          ...planned,
          environmentUid: app.production,
          config: { ...planned.spec, enabled: false },
          fence: 2n
        },
        null
      )
      // An older reconcile comes too late.
      yield* crons.put(
        { ...planned, environmentUid: app.production, config: planned.spec, fence: 1n },
        new Date(at)
      )
      const left = yield* Effect.flatMap(Db, ({ engine: sql }) =>
        Effect.orDie(sql`select next_at as at from cron_schedule where uid = ${planned.uid}
          union all select due_at from cron_run where cron_uid = ${planned.uid}`)
      )
      assert.deepStrictEqual([...left], [{ at: null }])
    })
  )
})

describe("delays between attempts", () => {
  it("grow from the first bound and never pass the other", () => {
    const retry = { maxAttempts: 10, initialDelaySeconds: 10, maxDelaySeconds: 60 }
    for (const random of [0, 0.5, 0.999]) {
      const delays = [1, 2, 3, 4, 9].map((attempt) => retryDelay(retry, attempt, random))
      assert.isAtLeast(delays[0] ?? 0, 10)
      assert.isAtMost(delays[0] ?? 0, 11)
      assert.isAbove(delays[1] ?? 0, delays[0] ?? 0)
      assert.isAtMost(Math.max(...delays), 60)
      assert.strictEqual(delays[4], 60)
    }
    // An app may ask for a longer wait, up to the bound of the job.
    assert.strictEqual(retryDelay(retry, 1, 0, 45), 45)
    assert.strictEqual(retryDelay(retry, 1, 0, 4_500), 60)
  })
})
