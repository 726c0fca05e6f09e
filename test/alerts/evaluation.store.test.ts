import { assert, describe, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { measurements, signalNames } from "#schemas/signal.ts"
import { evaluate } from "#src/alerts/evaluate.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { place, round, specOf, stack } from "./world.ts"

layer(stack, { excludeTestServices: true })("the evaluation of alerts", (it) => {
  it.effect("tells webhooks what fires and what is over, each once, and remembers how that went", () =>
    Effect.gen(function* () {
      const here = yield* place
      const uid = yield* here.resource("Database", "main")
      const alert = yield* here.alert({ scope: { database: "main" } })
      yield* here.measure(uid, { "storage.capacity": 85 })
      for (const _ of [1, 2]) yield* round()
      const standing = yield* here.standing(alert)
      assert.deepInclude(standing.measured, { value: 85 })
      yield* here.measure(uid, { "storage.capacity": 50 })
      for (const _ of [1, 2, 3]) yield* round(60)
      const firing = {
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
      const event = { projectId: here.projectId, deliveries: 1 }
      assert.deepStrictEqual(yield* here.events, [
        { ...event, type: "alert.firing", data: firing },
        { ...event, type: "alert.resolved", data: { ...firing, value: 50, reason: "cleared" } }
      ])
      // Not its URL, which may hold a secret.
      const delivery = { channel: "webhook", destination: here.webhookId, state: "waiting" } as const
      assert.deepStrictEqual(
        (yield* here.history(alert)).map(({ change, reason, deliveries }) => [change, reason, deliveries]),
        [
          ["firing", null, [delivery]],
          ["resolved", "cleared", [delivery]]
        ]
      )
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
      yield* here.measure(yield* here.resource("Database", "main"), { "cpu.percent": 50 })
      const alerts = new Map<string, string>()
      for (const operator of ["gt", "gte", "lt", "lte", "eq"])
        for (const threshold of [49, 50, 51]) {
          const condition = { signal: "cpu.percent", operator, threshold, durationSeconds: 0 }
          alerts.set(`50 ${operator} ${threshold}`, yield* here.alert({ condition }))
        }
      yield* round()
      const firing: Array<string> = []
      for (const [name, uid] of alerts) if ((yield* here.state(uid)) === "firing") firing.push(name)
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

  it.effect("an alert that is deleted while it fires tells that it is over, and leaves nothing", () =>
    Effect.gen(function* () {
      const here = yield* place
      const alert = yield* here.alert()
      yield* here.measure(yield* here.resource("Database", "main"), { "storage.capacity": 90 })
      yield* round()
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
})
