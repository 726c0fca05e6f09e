import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { ago, database, dayMs, findings, look, makeProject, place, setUp } from "./world.ts"

const allowing = (...allowedOperationIds: ReadonlyArray<string>) => ({
  autoRemediation: { enabled: true, maximumRisk: "write", allowedOperationIds }
})

const isProtected = Effect.fnUntraced(function* (uid: string) {
  const { sql } = yield* Plane
  const [row] = yield* sql(`select protected from resource where uid = '${uid}'`)
  return row?.["protected"] === true
})

const actionsOf = (run: { readonly actions: ReadonlyArray<Record<string, unknown>> }) =>
  run.actions.map(({ operationId, status, answered }) => [operationId, status, answered])

/** Lets an action be tried again as if it was decided on so long ago; answers its status and reason then. */
const tryAgain = Effect.fnUntraced(function* (id: string, age: string, tries: number) {
  const { sql } = yield* Plane
  yield* sql(`update maintenance_action set status = 'planned', finished_at = null, answered = null, due_at = now(),
    attempt = ${tries}, created_at = now() - interval '${age}' where id = '${id}'`)
  yield* sql(`select pg_notify('svc_maintenance', 'begin')`)
  const [row] = yield* eventually(
    "the action has ended",
    sql(`select status, reason from maintenance_action where id = '${id}' and finished_at is not null`),
    ({ length }) => length > 0
  )
  return [row?.["status"], String(row?.["reason"])] as const
})

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("automatic remediation", (it) => {
  it.effect("is refused for operations that need a person, by name", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const shop = yield* makeProject("refused")
      for (const id of ["database.delete", "apikeys.create", "backups.restore", "access.set", "nothing"]) {
        const { status, body } = yield* call("PUT", `${shop.path}/maintenance`, {
          body: allowing("resources.retry", id)
        })
        assert.strictEqual(status, 422)
        assert.deepStrictEqual(
          body.errors.map(({ pointer }: { pointer: string }) => pointer),
          ["/autoRemediation/allowedOperationIds/1"]
        )
        assert.include(JSON.stringify(body), "resources.protect")
      }
    })
  )

  it.effect("does nothing unless it is switched on, allowed by name and by risk", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const shop = yield* makeProject("not-allowed")
      const uid = yield* place(shop, database({}))
      const settings = [
        {},
        { autoRemediation: { ...allowing("resources.protect").autoRemediation, enabled: false } },
        allowing("resources.retry"),
        { autoRemediation: { ...allowing("resources.protect").autoRemediation, maximumRisk: "read" } },
        { autoRemediation: { ...allowing("resources.protect").autoRemediation, maxActionsPerRun: 0 } },
        { ...allowing("resources.protect"), enabled: false }
      ]
      yield* setUp(shop)
      for (const body of settings) {
        yield* call("PUT", `${shop.path}/maintenance`, { body })
        assert.deepStrictEqual((yield* look(shop)).actions, [])
      }
      assert.isFalse(yield* isProtected(uid))
    })
  )

  it.effect("carries out what is allowed, as the maintenance with the rights of an admin, once", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("allowed")
      const uid = yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* setUp(shop)
      yield* call("PUT", `${shop.path}/maintenance`, {
        body: allowing("resources.protect", "backups.create")
      })
      const run = yield* look(shop)
      assert.sameDeepMembers(actionsOf(run), [
        ["backups.create", "succeeded", 202],
        ["resources.protect", "succeeded", 200]
      ])
      assert.isTrue(yield* isProtected(uid))
      const [maintenance] = yield* sql(
        `select uid from resource where kind = 'Maintenance' and project_id = '${shop.projectId}'`
      )
      const log = yield* sql(`select principal, credential, operation, outcome, request_id from audit_log
        where resource = '${uid}' or resource in (select id::text from backup_job where database_uid = '${uid}')
        order by operation`)
      const principal = `maintenance:${maintenance?.["uid"]}`
      assert.deepStrictEqual(
        log.map((row) => [row["principal"], row["credential"], row["operation"], row["outcome"]]),
        [
          [principal, "maintenance", "backups.create", 202],
          [principal, "maintenance", "resources.protect", 200]
        ]
      )
      assert.sameMembers(
        log.map((row) => row["request_id"]),
        run.actions.map(({ id }: { id: string }) => id)
      )

      // The backup has not been made yet: it is not asked for again by the next run.
      const next = yield* look(shop)
      assert.deepStrictEqual(next.actions, [])
      assert.strictEqual(
        (yield* findings(shop)).filter(({ remedy }) => remedy?.operationId === "backups.create").length,
        1
      )
    })
  )

  it.effect("carries out no more than a run may, the gravest first", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("limited")
      const stalled = {
        ...({ type: "Stalled", status: "true", reason: "NoProgress" } as const),
        ...{ message: "Several tries in a row changed nothing", since: ago(dayMs) }
      }
      for (const [index, type] of ["Paused", "Stalled", "Drifted", "Stalled"].entries()) {
        if (type === "Paused") continue
        yield* place(shop, { kind: "Queue", name: `queue-${index}`, conditions: [{ ...stalled, type }] })
      }
      yield* setUp(shop)
      yield* call("PUT", `${shop.path}/maintenance`, {
        body: { autoRemediation: { ...allowing("resources.retry").autoRemediation, maxActionsPerRun: 2 } }
      })
      const first = yield* look(shop)
      assert.deepStrictEqual(first.actions.map(({ command }: { command: string }) => command).toSorted(), [
        "svc retry limited/production/Queue/queue-1",
        "svc retry limited/production/Queue/queue-3"
      ])
      const second = yield* look(shop)
      assert.deepStrictEqual(
        second.actions.map(({ command }: { command: string }) => command),
        ["svc retry limited/production/Queue/queue-2"]
      )
      // What did not help is tried again after a day.
      yield* sql(`update maintenance_action set created_at = created_at - interval '21 hours'`)
      assert.strictEqual((yield* look(shop)).actions.length, 2)
    })
  )

  it.effect("leaves dismissed findings alone, and stops when it is paused", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("paused")
      const uid = yield* place(shop, database({}))
      yield* setUp(shop, { categories: ["security"] })
      const one = (yield* findings(shop)).find(({ subject }) => subject.id === uid)
      const dismissal = `${shop.path}/maintenance/findings/${one.id}`
      yield* call("POST", `${dismissal}/dismiss`, { body: { reason: "it is meant to be so" } })
      yield* call("PUT", `${shop.path}/maintenance`, {
        body: { categories: ["security"], ...allowing("resources.protect") }
      })
      assert.deepStrictEqual((yield* look(shop)).actions, [])
      yield* call("POST", `${dismissal}/reopen`)

      const [row] = yield* sql(
        `select uid from resource where kind = 'Maintenance' and project_id = '${shop.projectId}'`
      )
      const resource = `/v1/orgs/main/resources/${row?.["uid"]}`
      assert.strictEqual(
        (yield* call("POST", `${resource}/pause`, { body: { reason: "night" } })).status,
        202
      )
      const paused = yield* look(shop)
      assert.deepStrictEqual(
        paused.actions.map(({ status, reason }: { status: string; reason: string }) => [status, reason]),
        [["refused", "The maintenance is paused"]]
      )
      assert.isFalse(yield* isProtected(uid))
      // While it is paused, no run begins by itself either.
      yield* sql(`update maintenance_schedule set next_at = now() where uid = '${row?.["uid"]}'`)
      yield* call("POST", `${resource}/resume`)
      yield* sql(`select pg_notify('svc_maintenance', 'plan')`)
      yield* eventually("it goes on", isProtected(uid), (done) => done)
    })
  )

  it.effect("leaves what is paused alone, also what was decided on before the pause", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("at-rest")
      const uid = yield* place(shop, database({}))
      yield* setUp(shop, { categories: ["security"], ...allowing("resources.protect") })
      const [run] = (yield* call("GET", `${shop.path}/maintenance/runs`)).body.items
      const done = yield* eventually(
        "it is carried out",
        call("GET", `${shop.path}/maintenance/runs/${run.id}`),
        ({ body }) => body.actions[0]?.finishedAt != null
      )
      assert.deepStrictEqual(actionsOf(done.body), [["resources.protect", "succeeded", 200]])
      yield* sql(`update resource set protected = false where uid = '${uid}'`)
      const resource = `/v1/orgs/main/resources/${uid}`
      const paused = yield* call("POST", `${resource}/pause`, { body: { reason: "somebody is at it" } })
      assert.strictEqual(paused.status, 202)
      const again = yield* tryAgain(done.body.actions[0].id, "0", 0)
      assert.deepStrictEqual(again, ["refused", "What it is about is paused"])
      assert.isFalse(yield* isProtected(uid))
      assert.deepStrictEqual((yield* look(shop)).actions, [])

      yield* call("POST", `${resource}/resume`)
      assert.deepStrictEqual(actionsOf(yield* look(shop)), [["resources.protect", "succeeded", 200]])
      assert.isTrue(yield* isProtected(uid))
    })
  )

  it.effect("does not carry out what was decided on long ago, nor what was begun too often", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* makeProject("late")
      const uid = yield* place(shop, database({}))
      yield* setUp(shop, { categories: ["security"] })
      const [maintenance] = yield* sql(
        `update resource set spec = spec || '${JSON.stringify(allowing("resources.protect"))}'
         where kind = 'Maintenance' and project_id = '${shop.projectId}' returning uid`
      )
      const [action] = (yield* look(shop)).actions
      assert.strictEqual(action.status, "succeeded")
      yield* sql(`update resource set protected = false where uid = '${uid}'`)
      assert.deepStrictEqual(yield* tryAgain(action.id, "361 minutes", 0), [
        "refused",
        "It was decided on more than 6 hours ago"
      ])
      const [status, reason] = yield* tryAgain(action.id, "361 minutes", 1)
      assert.deepStrictEqual([status, reason.includes("may have taken effect")], ["failed", true])
      assert.deepStrictEqual(yield* tryAgain(action.id, "0", 8), [
        "failed",
        "It was begun 8 times and had no answer"
      ])
      assert.isFalse(yield* isProtected(uid))

      // While one is open, however old, no other is decided on for the same finding.
      yield* sql(`update maintenance_action set status = 'running', finished_at = null, due_at = now() + interval '1 hour',
        created_at = now() - interval '2 days' where id = '${action.id}'`)
      assert.deepStrictEqual((yield* look(shop)).actions, [])
      const [count] = yield* sql(
        `select count(*)::int as n from maintenance_action where maintenance_uid = '${maintenance?.["uid"]}'`
      )
      assert.deepStrictEqual(count, { n: 1 })
    })
  )

  it.effect("takes effect once, though its process was killed after the call", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("killed")
      const uid = yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* setUp(shop)
      yield* call("PUT", `${shop.path}/maintenance`, { body: allowing("backups.create") })
      const run = yield* look(shop)
      assert.deepStrictEqual(actionsOf(run), [["backups.create", "succeeded", 202]])
      const jobs = sql(`select count(*)::int as jobs from backup_job where database_uid = '${uid}'`)
      const audited = sql(`select count(*)::int as n from audit_log where operation = 'backups.create'
        and request_id = '${run.actions[0].id}'`)
      // The job is over meanwhile: without the key, another one would be made.
      yield* sql(`update backup_job set status = 'failed', finished_at = now() where database_uid = '${uid}'`)
      yield* sql(`update maintenance_action set status = 'running', finished_at = null, answered = null, due_at = now()
        where id = '${run.actions[0].id}'`)
      yield* sql(`select pg_notify('svc_maintenance', 'begin')`)
      const again = yield* eventually(
        "it is carried out",
        call("GET", `${shop.path}/maintenance/runs/${run.id}`),
        ({ body }) => body.actions[0].finishedAt !== null
      )
      assert.deepStrictEqual(actionsOf(again.body), [["backups.create", "succeeded", 202]])
      assert.deepStrictEqual([yield* jobs, yield* audited], [[{ jobs: 1 }], [{ n: 1 }]])
    })
  )

  it.effect("is refused what an admin's key is refused", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("unpaid")
      yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* setUp(shop)
      yield* call("PUT", `${shop.path}/maintenance`, { body: allowing("backups.create") })
      yield* sql(`update organization set billing_status = 'past_due' where slug = 'main'`)
      const run = yield* Effect.ensuring(
        look(shop),
        sql(`update organization set billing_status = 'active' where slug = 'main'`)
      )
      assert.deepStrictEqual(actionsOf(run), [["backups.create", "failed", 402]])
      assert.include(run.actions[0].reason, "Billing")
    })
  )
})
