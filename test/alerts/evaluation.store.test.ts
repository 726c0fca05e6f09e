import { assert, describe, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { measurements, signalNames } from "#schemas/signal.ts"
import { evaluate } from "#src/alerts/evaluate.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { full, place, round, specOf, stack } from "./world.ts"

type Place = Effect.Success<typeof place>

/** An alert that has just begun to fire about a database. */
const firing = Effect.gen(function* () {
  const here = yield* place
  const uid = yield* here.resource("Database", "main")
  const alert = yield* here.alert()
  yield* here.measure(uid, { "storage.capacity": 90 })
  yield* round()
  return { here, uid, alert }
})
/** Three more evaluations, which is long enough for what is over to be told. */
const longAfter = Effect.repeat(round(60), { times: 2 })

layer(stack, { excludeTestServices: true })("the evaluation of alerts", (it) => {
  it.effect("an alert fires when its condition has held for long enough, and tells of it once", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Database", "main")
      const alert = yield* here.alert({
        scope: { database: "main" },
        condition: { signal: "storage.capacity", durationSeconds: 30 }
      })
      yield* here.measure(uid, { "storage.capacity": 85 })
      const states = []
      for (const _ of [1, 2, 3, 4]) {
        yield* round(15)
        states.push(yield* here.state(alert))
      }
      assert.deepStrictEqual(states, ["pending", "pending", "firing", "firing"])
      const [event, ...more] = yield* here.events
      assert.deepStrictEqual(more, [])
      const standing = yield* here.standing(alert)
      assert.deepStrictEqual(event, {
        type: "alert.firing",
        projectId: here.projectId,
        deliveries: 1,
        data: {
          alertId: alert,
          name: "full",
          severity: "warning",
          incidentId: standing.incident?.id,
          signal: "storage.capacity",
          operator: "gte",
          threshold: 85,
          value: 85,
          resource: { id: uid, kind: "Database", name: "main", environment: "production" },
          reason: null
        }
      })
      assert.deepInclude(standing.measured, { value: 85 })
      assert.deepStrictEqual(yield* here.changes(alert), ["firing"])
    })
  )

  it.effect("a condition that ends in time fires nothing, and counts from the start the next time", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Database", "main")
      const alert = yield* here.alert({ condition: { signal: "storage.capacity", durationSeconds: 30 } })
      for (const value of [90, 90, 80, 90, 90]) {
        yield* here.measure(uid, { "storage.capacity": value })
        yield* round(20)
      }
      assert.strictEqual(yield* here.state(alert), "pending")
      assert.deepStrictEqual(yield* here.told, [])
    })
  )

  it.effect("an alert resolves when its condition has not held for a while, and tells of that once", () =>
    Effect.gen(function* () {
      const { here, uid, alert } = yield* firing
      yield* here.measure(uid, { "storage.capacity": 50 })
      const states = []
      for (const passed of [15, 30, 29, 1, 15]) {
        yield* round(passed)
        states.push(yield* here.state(alert))
      }
      assert.deepStrictEqual(states, ["firing", "firing", "firing", "ok", "ok"])
      const [fired, resolved, ...more] = yield* here.events
      assert.deepStrictEqual(more, [])
      assert.strictEqual(resolved?.type, "alert.resolved")
      assert.deepInclude(resolved?.data, { reason: "cleared", value: 50 })
      assert.strictEqual(resolved?.data["incidentId"], fired?.data["incidentId"])
      const entries = yield* here.history(alert)
      assert.deepStrictEqual(
        entries.map(({ change, reason }) => [change, reason]),
        [
          ["firing", null],
          ["resolved", "cleared"]
        ]
      )
      const toWebhook = {
        channel: "webhook",
        // Not its URL, which may hold a secret.
        destination: here.webhookId,
        state: "waiting"
      } as const
      assert.deepStrictEqual(
        entries.map(({ deliveries }) => deliveries),
        [[toWebhook], [toWebhook]]
      )
    })
  )

  it.effect("what comes and goes stays one incident, and the next one is told after the cooldown", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Cache", "sessions")
      const alert = yield* here.alert({ cooldownSeconds: 600 })
      const see = (value: number, passed = 60) =>
        Effect.andThen(here.measure(uid, { "storage.capacity": value }), round(passed))
      for (const value of [90, 10, 90, 10, 90, 10]) yield* see(value, 45)
      assert.strictEqual(yield* here.state(alert), "firing")
      assert.deepStrictEqual(yield* here.told, ["alert.firing"])
      yield* see(10)
      yield* see(10)
      assert.strictEqual(yield* here.state(alert), "ok")
      yield* see(90)
      const kept = yield* here.standing(alert)
      assert.deepInclude(kept, { state: "firing" })
      assert.isNull(kept.incident?.notifiedAt)
      assert.deepStrictEqual(yield* here.told, ["alert.firing", "alert.resolved"])
      yield* here.sql`update alert set last_told_at = now() - interval '601 seconds' where uid = ${alert}`
      yield* see(90)
      assert.deepStrictEqual(yield* here.told, ["alert.firing", "alert.resolved", "alert.firing"])
      assert.strictEqual((yield* here.changes(alert)).at(-1), "notified")
    })
  )

  it.effect("what was never told to fire is not told to be over", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Cache", "sessions")
      const alert = yield* here.alert()
      yield* here.alerts.silence({ orgId: here.orgId, uid: alert }, { seconds: 600, reason: null }, actor)
      yield* here.measure(uid, { "storage.capacity": 90 })
      yield* round()
      yield* here.measure(uid, { "storage.capacity": 9 })
      yield* round()
      yield* round(60)
      assert.strictEqual(yield* here.state(alert), "ok")
      assert.deepStrictEqual(yield* here.changes(alert), ["silenced", "firing", "resolved"])
      assert.deepStrictEqual(yield* here.told, [])
    })
  )

  it.effect("each of the 31 signals fires by what is recorded, at its threshold and not before", () =>
    Effect.gen(function* () {
      const here = yield* place
      assert.lengthOf(signalNames, 31)
      const alerts = new Map<string, string>()
      const uids = new Map<string, string>([["Environment", here.production]])
      for (const signal of signalNames) {
        const { usualThreshold, kinds } = measurements[signal]
        const threshold = usualThreshold === undefined ? { threshold: 7 } : {}
        alerts.set(
          signal,
          yield* here.alert({ condition: { signal, durationSeconds: 0, ...threshold } }, signal)
        )
        const [kind = "Database"] = kinds
        if (!uids.has(kind)) uids.set(kind, yield* here.resource(kind, "main"))
      }
      /** Of every resource all signals of its kind. */
      const measure = (recorded: (threshold: number) => number) =>
        Effect.forEach([...uids], ([kind, uid]) =>
          here.measure(
            uid,
            Object.fromEntries(
              signalNames
                .filter((signal) => measurements[signal].kinds[0] === kind)
                .map((signal) => [signal, recorded(measurements[signal].usualThreshold ?? 7)])
            )
          )
        )
      const states = Effect.forEach([...alerts], ([signal, uid]) =>
        Effect.map(here.state(uid), (state) => [signal, state])
      )
      yield* measure((threshold) => threshold - 0.5)
      yield* round()
      assert.deepStrictEqual(
        yield* states,
        signalNames.map((signal) => [signal, "ok"])
      )
      yield* measure((threshold) => threshold)
      yield* round()
      assert.deepStrictEqual(
        yield* states,
        signalNames.map((signal) => [signal, "firing"])
      )
      assert.sameMembers(
        (yield* here.events).map(({ data }) => data["signal"]),
        [...signalNames]
      )
    })
  )

  it.effect("operators mean what they say", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Database", "main")
      yield* here.measure(uid, { "cpu.percent": 50 })
      const firing: Array<string> = []
      for (const operator of ["gt", "gte", "lt", "lte", "eq"])
        for (const threshold of [49, 50, 51]) {
          const alert = yield* here.alert({
            condition: { signal: "cpu.percent", operator, threshold, durationSeconds: 0 }
          })
          yield* round()
          if ((yield* here.state(alert)) === "firing") firing.push(`50 ${operator} ${threshold}`)
        }
      assert.deepStrictEqual(firing, [
        "50 gt 49",
        "50 gte 49",
        "50 gte 50",
        "50 lt 51",
        "50 lte 50",
        "50 lte 51",
        "50 eq 50"
      ])
    })
  )

  describe("scopes", () => {
    it.effect("say what is watched, and the worst of it is named", () =>
      Effect.gen(function* () {
        const here = yield* place
        const other = yield* place
        const values = { main: 86, preview: 99, cache: 95 }
        const main = yield* here.resource("Database", "main")
        const preview = yield* here.resource("Database", "main", "preview")
        const cache = yield* here.resource("Cache", "main")
        yield* here.measure(main, { "storage.capacity": values.main })
        yield* here.measure(preview, { "storage.capacity": values.preview })
        yield* here.measure(cache, { "storage.capacity": values.cache })
        const alerts = {
          database: yield* here.alert({ scope: { database: "main" } }),
          preview: yield* here.alert({ scope: { database: "main", environment: "preview" } }),
          production: yield* here.alert({ scope: { environment: "production" } }),
          project: yield* here.alert(),
          nothing: yield* here.alert({ scope: { database: "other" } }),
          lowest: yield* here.alert({
            condition: { signal: "storage.capacity", operator: "lt", threshold: 100, durationSeconds: 0 }
          }),
          elsewhere: yield* other.alert()
        }
        yield* round()
        const worst = (uid: string) =>
          Effect.map(here.standing(uid), ({ measured, state }) => [state, measured?.resource.id])
        assert.deepStrictEqual(yield* worst(alerts.database), ["firing", main])
        assert.deepStrictEqual(yield* worst(alerts.preview), ["firing", preview])
        assert.deepStrictEqual(yield* worst(alerts.production), ["firing", cache])
        assert.deepStrictEqual(yield* worst(alerts.project), ["firing", preview])
        assert.deepStrictEqual(yield* worst(alerts.nothing), ["no_data", undefined])
        assert.deepStrictEqual(yield* worst(alerts.lowest), ["firing", main])
        assert.strictEqual(yield* other.state(alerts.elsewhere), "no_data")
      })
    )

    it.effect("an environment is watched by its own signals", () =>
      Effect.gen(function* () {
        const here = yield* place
        const condition = { signal: "http.errors", threshold: 10, durationSeconds: 0 }
        const production = yield* here.alert({ scope: { environment: "production" }, condition })
        const preview = yield* here.alert({ scope: { environment: "preview" }, condition })
        yield* here.measure(here.production, { "http.errors": 12 }, 0, "store")
        yield* round()
        assert.deepStrictEqual(
          [yield* here.state(production), yield* here.state(preview)],
          ["firing", "no_data"]
        )
      })
    )
  })

  describe("without data", () => {
    it.effect("an alert that does not fire says so, and goes on when there is some", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert()
        yield* round()
        assert.strictEqual(yield* here.state(alert), "no_data")
        // Measured, but not this.
        yield* here.measure(uid, { "cpu.percent": 99 })
        yield* round()
        assert.strictEqual(yield* here.state(alert), "no_data")
        yield* here.measure(uid, { "storage.capacity": 1 }, 80)
        yield* round()
        assert.strictEqual(yield* here.state(alert), "ok")
        yield* here.measure(uid, { "storage.capacity": 99 }, 91)
        yield* round()
        assert.deepInclude(yield* here.standing(alert), { state: "no_data", measured: null })
        yield* here.measure(uid, { "storage.capacity": 1 })
        yield* round()
        // That nothing was measured before the first value is no loss.
        assert.deepStrictEqual(yield* here.changes(alert), ["no_data", "data_back"])
        assert.deepStrictEqual(yield* here.told, [])

        const off = yield* here.alert({ enabled: false })
        yield* round()
        assert.strictEqual(yield* here.state(off), "ok")
        assert.deepStrictEqual(yield* here.changes(off), [])
      })
    )

    it.effect("an alert that fires goes on firing until what it is about is measured again", () =>
      Effect.gen(function* () {
        const here = yield* place
        const [main, well] = [yield* here.resource("Database", "main"), yield* here.resource("Cache", "well")]
        const alert = yield* here.alert()
        yield* here.measure(main, { "storage.capacity": 90 })
        yield* here.measure(well, { "storage.capacity": 1 })
        yield* round()
        yield* here.measure(main, { "storage.capacity": 90 }, 3_600)
        yield* longAfter
        const lost = yield* here.standing(alert)
        assert.strictEqual(lost.state, "firing")
        assert.isNotNull(lost.incident?.dataLostAt)
        // The whole table is lost in a crash of the server, and the other resource is measured first.
        yield* here.sql`delete from metric_now where uid = ${main}`
        yield* longAfter
        assert.strictEqual(yield* here.state(alert), "firing")
        yield* here.measure(main, { "storage.capacity": 10 })
        yield* longAfter
        assert.strictEqual(yield* here.state(alert), "ok")
        assert.deepStrictEqual(yield* here.changes(alert), ["firing", "data_lost", "data_back", "resolved"])
        assert.deepStrictEqual(yield* here.told, ["alert.firing", "alert.resolved"])
      })
    )

    it.effect("only what an alert fired about keeps it firing by an old value", () =>
      Effect.gen(function* () {
        const here = yield* place
        const main = yield* here.resource("Database", "main")
        const run = yield* here.resource("Execution", "import")
        const alert = yield* here.alert({
          condition: { signal: "cpu.percent", threshold: 90, durationSeconds: 0 }
        })
        // It ended at that, and nobody measures it again.
        yield* here.measure(run, { "cpu.percent": 97 }, 300)
        yield* here.measure(main, { "cpu.percent": 95 })
        yield* round()
        assert.strictEqual((yield* here.standing(alert)).incident?.resource?.id, main)
        yield* here.measure(main, { "cpu.percent": 1 })
        yield* longAfter
        assert.strictEqual(yield* here.state(alert), "ok")
      })
    )

    it.effect(
      "an alert goes on being about what is lost, whatever else the condition holds for meanwhile",
      () =>
        Effect.gen(function* () {
          const here = yield* place
          const main = yield* here.resource("Database", "main")
          const cache = yield* here.resource("Cache", "sessions")
          const alert = yield* here.alert()
          yield* here.measure(main, { "storage.capacity": 90 })
          yield* round()
          yield* here.measure(main, { "storage.capacity": 90 }, 600)
          yield* here.measure(cache, { "storage.capacity": 99 })
          yield* round()
          yield* here.measure(cache, { "storage.capacity": 1 })
          yield* longAfter
          const { state, incident } = yield* here.standing(alert)
          assert.deepStrictEqual([state, incident?.resource?.id], ["firing", main])
        })
    )

    const gone = [
      {
        what: "execution ends",
        kind: "Execution",
        end: (here: Place, uid: string) => here.sql`
          update resource set status = ${here.sql.json({ finishedAt: new Date().toISOString() })}::jsonb
          where uid = ${uid}`
      },
      {
        what: "resource is deleted",
        kind: "Database",
        end: (here: Place, uid: string) =>
          here.resources.write(here.orgId, [{ action: "delete", uid }], actor)
      }
    ]
    for (const { what, kind, end } of gone)
      it.effect(`an alert resolves, and says why, when the ${what} that it fired about`, () =>
        Effect.gen(function* () {
          const here = yield* place
          const uid = yield* here.resource(kind, "main")
          const alert = yield* here.alert({
            condition: { signal: "cpu.percent", threshold: 90, durationSeconds: 0 }
          })
          yield* here.measure(uid, { "cpu.percent": 97 })
          yield* round()
          assert.strictEqual(yield* here.state(alert), "firing")
          yield* end(here, uid)
          yield* longAfter
          assert.strictEqual(yield* here.state(alert), "no_data")
          const last = (yield* here.history(alert)).findLast(({ change }) => change === "resolved")
          assert.strictEqual(last?.reason, "resource_gone")
        })
      )
  })

  describe("clocks", () => {
    it.effect("a jump forward, or a long pause of all evaluators, counts for no more than a minute", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert({ condition: { signal: "storage.capacity", durationSeconds: 90 } })
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        yield* round(86_400)
        assert.strictEqual(yield* here.state(alert), "pending")
        yield* round(30)
        assert.strictEqual(yield* here.state(alert), "firing")
      })
    )

    it.effect("a jump back stops no evaluation and counts nothing", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert({
          condition: { signal: "storage.capacity", durationSeconds: 30 },
          cooldownSeconds: 600
        })
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        yield* round(15)
        yield* here.sql`update alert_turn set looked_at = now() + interval '1 hour', due_at = now() + interval '61 minutes'`
        yield* here.sql`update alert set last_told_at = now() + interval '1 hour' where uid = ${alert}`
        assert.isAbove((yield* round(-3_600)).rounds, 0)
        assert.strictEqual(yield* here.state(alert), "pending")
        yield* round(15)
        // It was told an hour from now, which is no reason to keep quiet.
        assert.deepStrictEqual(yield* here.told, ["alert.firing"])
      })
    )

    it.effect("nobody takes a turn that is not due, and a clock that was set back puts none off", () =>
      Effect.gen(function* () {
        const here = yield* place
        yield* here.alert()
        const due = (seconds: number) =>
          here.sql`update alert_turn set due_at = case when org_id = ${here.orgId}
            then now() + make_interval(secs => ${seconds}::float8) else now() + interval '30 seconds' end`
        yield* due(10)
        assert.strictEqual((yield* evaluate).rounds, 0)
        yield* due(3_600)
        assert.strictEqual((yield* evaluate).rounds, 1)
        assert.strictEqual((yield* evaluate).rounds, 0)
      })
    )
  })

  describe("several evaluators", () => {
    it.effect("one has the turn", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert()
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* here.sql`update alert_turn set due_at = now() + case when org_id = ${here.orgId}
          then interval '0' else interval '30 seconds' end`
        const rounds = yield* Effect.forEach(Array.from({ length: 12 }), () => evaluate, {
          concurrency: "unbounded"
        })
        assert.strictEqual(
          rounds.reduce((sum, { rounds }) => sum + rounds, 0),
          1
        )
        assert.deepStrictEqual(yield* here.changes(alert), ["firing"])
        assert.deepStrictEqual(yield* here.told, ["alert.firing"])
      })
    )

    it.effect("who decided by an older state writes nothing", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert()
        yield* here.measure(uid, { "storage.capacity": 90 })
        const [held, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        // Somebody changes the alert, and the round begins before that is committed.
        const change = here.sql.withTransaction(
          Effect.gen(function* () {
            yield* here.sql`update alert set version = version + 1 where uid = ${alert}`
            yield* Deferred.succeed(held, undefined)
            yield* Deferred.await(release)
          })
        )
        const changing = yield* Effect.forkChild(change)
        yield* Deferred.await(held)
        const evaluating = yield* Effect.forkChild(round())
        yield* eventually(
          "the round waits for the row",
          here.sql`
            select from pg_locks w where not granted and exists (
              select from pg_locks o where o.pid = w.pid and o.relation = 'alert'::regclass
                and o.database = (select oid from pg_database where datname = current_database()))`,
          (rows) => rows.length > 0
        )
        yield* Deferred.succeed(release, undefined)
        yield* Fiber.join(changing)
        assert.deepInclude(yield* Fiber.join(evaluating), { moved: 0, told: 0 })
        assert.deepStrictEqual(yield* here.told, [])
      })
    )
  })

  describe("an organization whose evaluation fails", () => {
    it.effect("is put off, and keeps no other from being evaluated", () =>
      Effect.gen(function* () {
        const [broken, other] = [yield* place, yield* place]
        for (const here of [broken, other])
          yield* here.measure(yield* here.resource("Database", "main"), { "storage.capacity": 90 })
        const [never, fires] = [yield* broken.alert(), yield* other.alert()]
        const duration = (value: string) => broken.sql`
          update alert set config = jsonb_set(config, '{condition,durationSeconds}', ${value}::jsonb) where uid = ${never}`
        yield* duration('"long"')
        yield* round()
        assert.strictEqual(yield* other.state(fires), "firing")
        assert.strictEqual(yield* broken.state(never), "no_data")
        const turn = broken.sql<{ readonly alone: boolean; readonly later: boolean }>`
          select alone, due_at > now() + interval '30 seconds' as later from alert_turn where org_id = ${broken.orgId}`
        assert.deepStrictEqual(yield* turn, [{ alone: true, later: true }])
        yield* duration("0")
        yield* round()
        assert.strictEqual(yield* broken.state(never), "firing")
        assert.deepStrictEqual(yield* turn, [{ alone: false, later: false }])
      })
    )

    it.effect("is none that has a thousand alerts of a thousand resources", () =>
      Effect.gen(function* () {
        const here = yield* place
        yield* here.alert()
        yield* here.sql`
          insert into resource (org_id, uid, kind, project_id, environment, name, spec, managed_by, parent_uid)
          select ${here.orgId}::uuid, gen_random_uuid(), 'Queue', ${here.projectId}::uuid, 'production', 'q-' || i, '{}',
            'api', ${here.production}::uuid from generate_series(1, 1000) i`
        yield* here.sql`
          insert into metric_now (org_id, uid, source, at, values, kept)
          select org_id, uid, 'store', now(), '{"queue.backlog": 5}', true
          from resource where kind = 'Queue' and org_id = ${here.orgId}::uuid`
        const config = specOf({ condition: { signal: "queue.backlog", threshold: 5, durationSeconds: 0 } })
        yield* here.sql`
          insert into alert (org_id, uid, project_id, name, config, threshold, fence)
          select ${here.orgId}::uuid, gen_random_uuid(), ${here.projectId}::uuid, 'a' || i,
            ${here.sql.json(config)}::jsonb, 5, 1 from generate_series(1, 1000) i`
        yield* round()
        assert.lengthOf(yield* here.events, 1_000)
      })
    )
  })

  describe("rules that change", () => {
    it.effect("one that is switched off while it fires resolves at once", () =>
      Effect.gen(function* () {
        const { here, alert } = yield* firing
        yield* here.put(alert, specOf({ enabled: false }))
        yield* round()
        assert.strictEqual(yield* here.state(alert), "ok")
        assert.strictEqual((yield* here.history(alert)).at(-1)?.reason, "disabled")
        assert.deepStrictEqual(yield* here.told, ["alert.firing", "alert.resolved"])
      })
    )

    it.effect("one about something else from now on is not held by what it was about", () =>
      Effect.gen(function* () {
        const here = yield* place
        const [main, cache] = [
          yield* here.resource("Database", "main"),
          yield* here.resource("Cache", "sessions", "preview")
        ]
        const alert = yield* here.alert()
        yield* here.measure(main, { "storage.capacity": 90 })
        yield* here.measure(cache, { "storage.capacity": 10 })
        yield* round()
        yield* here.put(alert, specOf({ ...full, scope: { environment: "preview" } }))
        yield* longAfter
        assert.strictEqual(yield* here.state(alert), "ok")
      })
    )

    it.effect("one that is deleted while it fires tells that it is over, and leaves nothing", () =>
      Effect.gen(function* () {
        const { here, alert } = yield* firing
        assert.isTrue(yield* here.rules.remove({ orgId: here.orgId, uid: alert, fence: 2n }))
        assert.isTrue(yield* here.rules.remove({ orgId: here.orgId, uid: alert, fence: 3n }))
        const [fired, over, ...more] = yield* here.events
        assert.deepStrictEqual(more, [])
        assert.deepInclude(over?.data, { reason: "deleted", incidentId: fired?.data["incidentId"] })
        assert.deepStrictEqual(yield* here.history(alert), [])
        assert.isFalse(yield* here.rules.remains({ orgId: here.orgId, uid: alert }))
        assert.isFalse(yield* here.rules.remains({ orgId: here.orgId, uid: uuid() }))
      })
    )
  })

  describe("people", () => {
    it.effect("a silence keeps it quiet, is remembered, and when it ends what still fires is told", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert()
        const ref = { orgId: here.orgId, uid: alert }
        assert.isTrue(yield* here.alerts.silence(ref, { seconds: 600, reason: "works" }, actor))
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        yield* round()
        const silent = yield* here.standing(alert)
        assert.deepInclude(silent, { state: "firing" })
        assert.deepInclude(silent.silence, { by: "system", reason: "works" })
        assert.deepStrictEqual(yield* here.told, [])
        yield* here.sql`update alert set silenced_until = now() where uid = ${alert}`
        yield* round()
        assert.isNull((yield* here.standing(alert)).silence)
        assert.deepStrictEqual(yield* here.told, ["alert.firing"])
        assert.deepStrictEqual(
          (yield* here.changes(alert)).toSorted(),
          ["silenced", "firing", "silence_ended", "notified"].toSorted()
        )
      })
    )

    it.effect("a silence that is taken back ends at once", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert()
        const ref = { orgId: here.orgId, uid: alert }
        yield* here.alerts.silence(ref, { seconds: 600, reason: null }, actor)
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        yield* here.alerts.silence(ref, { seconds: 0, reason: null }, actor)
        yield* round()
        assert.deepStrictEqual(yield* here.told, ["alert.firing"])
      })
    )

    it.effect("what is acknowledged is told to nobody else, until the next incident", () =>
      Effect.gen(function* () {
        const here = yield* place
        const uid = yield* here.resource("Database", "main")
        const alert = yield* here.alert({ cooldownSeconds: 600 })
        const ref = { orgId: here.orgId, uid: alert }
        assert.isFalse(yield* here.alerts.acknowledge(ref, actor))
        yield* here.sql`update alert set last_told_at = now() where uid = ${alert}`
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        assert.isTrue(yield* here.alerts.acknowledge(ref, actor))
        yield* here.sql`update alert set last_told_at = now() - interval '1 hour' where uid = ${alert}`
        yield* round()
        assert.deepStrictEqual(yield* here.told, [])
        assert.strictEqual((yield* here.standing(alert)).incident?.acknowledgedBy, "system")
        yield* here.measure(uid, { "storage.capacity": 1 })
        yield* round()
        yield* round(60)
        yield* here.measure(uid, { "storage.capacity": 90 })
        yield* round()
        assert.isNull((yield* here.standing(alert)).incident?.acknowledgedBy)
        assert.deepStrictEqual(yield* here.told, ["alert.firing"])
      })
    )
  })
})
