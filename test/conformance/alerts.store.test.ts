import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { AlertHistoryPage, AlertView } from "#src/alerts/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const project = "/v1/orgs/main/projects/shop"
const base = `${project}/alerts`
const disk = (name: string, values: object = {}) => ({
  name,
  severity: "critical",
  scope: {},
  condition: { signal: "storage.capacity" },
  ...values
})
const shop = Effect.gen(function* () {
  const plane = yield* Plane
  yield* plane.call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
  return plane
})

layer(testPlane(), { excludeTestServices: true })("alerts", (it) => {
  it.effect("are created, read, changed, listed by name and deleted", () =>
    Effect.gen(function* () {
      const { call } = yield* shop
      const made = yield* call("POST", base, { body: disk("Disk full", { scope: { database: "main" } }) })
      assert.strictEqual(made.status, 201, made.text)
      yield* fits(AlertView, made.body)
      // It may have been evaluated before it was shown.
      const { id, createdAt: _, updatedAt: __, since: ___, ...rest } = made.body
      assert.deepStrictEqual(rest, {
        name: "Disk full",
        enabled: true,
        severity: "critical",
        scope: { environment: "production", database: "main", queue: null, cron: null },
        condition: { signal: "storage.capacity", operator: "gte", threshold: null, durationSeconds: 60 },
        channels: [{ kind: "dashboard", destination: null }],
        cooldownSeconds: 300,
        unavailable: null,
        threshold: 85,
        state: "no_data",
        underlyingState: "no_data",
        measured: null,
        incident: null,
        silence: null
      })
      const one = `${base}/${id}`
      const inForce = yield* untilAnswer(call("GET", one), ({ body }) => body.since !== null)
      yield* fits(AlertView, inForce.body)
      assert.strictEqual((yield* call("POST", base, { body: disk("Disk full") })).body.code, "name_taken")
      yield* call("POST", base, { body: disk("Another") })
      const all = yield* call("GET", base)
      yield* fits(Schema.Array(AlertView), all.body)
      assert.deepStrictEqual(
        all.body.map((alert: { name: string }) => alert.name),
        ["Another", "Disk full"]
      )
      const changed = yield* call("PATCH", one, {
        body: { scope: {}, condition: { signal: "cpu.percent", operator: "gt", threshold: 150.5 } }
      })
      assert.strictEqual(changed.status, 200, changed.text)
      assert.deepInclude(changed.body.scope, { environment: null, database: null })
      yield* untilAnswer(call("GET", one), ({ body }) => body.threshold === 150.5)
      assert.strictEqual((yield* call("DELETE", one)).status, 200)
      yield* untilAnswer(call("GET", one), ({ status }) => status === 404)
    })
  )

  it.effect("say so when nothing measures their signal", () =>
    Effect.gen(function* () {
      const { call } = yield* shop
      const condition = { signal: "database.query_latency_p99_ms", threshold: 100 }
      const made = yield* call("POST", base, { body: disk("Slow statements", { condition }) })
      assert.strictEqual(made.status, 201, made.text)
      assert.include(made.body.unavailable, "no distribution of them")
    })
  )

  it.effect("are no more than a thousand of a project", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const few = "/v1/orgs/main/projects/few"
      const { body } = yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Few", slug: "few" } })
      yield* sql(`
        insert into resource (org_id, uid, kind, project_id, name, spec, managed_by, parent_uid)
        select org_id, gen_random_uuid(), 'Alert', uid, 'alert ' || i, '{}', 'api', uid
        from resource cross join generate_series(1, 1000) i where uid = '${body.id}'`)
      const refused = yield* call("POST", `${few}/alerts`, { body: disk("One more") })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "too_many_alerts"])
      yield* sql(
        `delete from resource where kind = 'Alert' and project_id = '${body.id}' and name = 'alert 7'`
      )
      const made = yield* call("POST", `${few}/alerts`, { body: disk("One more") })
      assert.strictEqual(made.status, 201, made.text)
      // What was put there is no alert that can be read.
      yield* sql(`delete from resource where kind = 'Alert' and project_id = '${body.id}' and spec = '{}'`)
    })
  )

  it.effect("refuse what cannot be, and say where", () =>
    Effect.gen(function* () {
      const { call } = yield* shop
      const refused = Effect.fnUntraced(function* (values: object) {
        const { status, body } = yield* call("POST", base, { body: disk("Refused", values) })
        return [status, body.errors?.[0]?.pointer]
      })
      const faults: ReadonlyArray<readonly [object, string]> = [
        [{ condition: { signal: "cpu.percent" } }, "/condition/threshold"],
        [{ condition: { signal: "cpu" } }, "/condition/signal"],
        [{ condition: { signal: "storage.capacity", operator: "ne" } }, "/condition/operator"],
        [{ condition: { signal: "storage.capacity", durationSeconds: -1 } }, "/condition/durationSeconds"],
        [{ condition: undefined }, "/condition"],
        [{ scope: { queue: "jobs" } }, "/scope/queue"],
        [{ scope: { environment: "UPPER" } }, "/scope/environment"],
        [{ name: "two\nlines" }, "/name"],
        [{ severity: "fatal" }, "/severity"],
        [{ channels: [{ kind: "mail", destination: "nobody" }] }, "/channels/0/destination"],
        [{ channels: [{ kind: "webhook", destination: "https://example.com" }] }, "/channels/0/destination"],
        [{ cooldownSeconds: 1e9 }, "/cooldownSeconds"],
        [{ channels: [{ kind: "mail", destination: null }], cooldownSeconds: 299 }, "/cooldownSeconds"],
        [
          {
            channels: ["a@example.com", "A@example.com"].map((destination) => ({ kind: "mail", destination }))
          },
          "/channels"
        ]
      ]
      for (const [values, pointer] of faults)
        assert.deepStrictEqual(yield* refused(values), [422, pointer], JSON.stringify(values))
    })
  )

  it.effect("fire by what is measured, and are acknowledged, silenced and remembered", () =>
    Effect.gen(function* () {
      const { call, sql, tenant } = yield* shop
      const mine = yield* tenant()
      const projects = `/v1/orgs/${mine.slug}/projects`
      const alerts = `${projects}/shop/alerts`
      const as = (role: "admin" | "member") => ({ token: mine[role] })
      yield* call("POST", projects, { ...as("admin"), body: { name: "Shop", slug: "shop" } })
      const queue = yield* call("POST", `${projects}/shop/queues`, {
        ...as("admin"),
        body: { name: "jobs" }
      })
      const made = yield* call("POST", alerts, {
        ...as("admin"),
        body: {
          name: "backlog",
          severity: "warning",
          scope: { queue: "jobs" },
          condition: { signal: "queue.backlog_messages", threshold: 5, durationSeconds: 0 },
          channels: [{ kind: "mail", destination: null }]
        }
      })
      assert.strictEqual(made.status, 201, made.text)
      const one = `${alerts}/${made.body.id}`
      yield* untilAnswer(call("GET", one, as("member")), ({ body }) => body.since !== null)
      const messages = Array.from({ length: 7 }, (_, body) => ({ body }))
      yield* call("POST", `${projects}/shop/queues/${queue.body.id}/messages`, {
        ...as("member"),
        body: { messages }
      })
      const early = yield* call("POST", `${one}/acknowledge`, as("member"))
      assert.deepStrictEqual([early.status, early.body.code], [409, "not_firing"])
      yield* sql(`
        insert into metric_now (org_id, uid, source, at, values, kept)
        values ('${mine.id}', '${queue.body.id}', 'store', now(), '{"queue.backlog_messages": 7}', true)
        on conflict (org_id, uid, source) do update set at = now(), values = excluded.values`)
      const firing = yield* untilAnswer(call("GET", one, as("member")), ({ body }) => body.state === "firing")
      yield* fits(AlertView, firing.body)
      assert.strictEqual(firing.body.incident.resource.name, "jobs")
      assert.isNotNull(firing.body.incident.notifiedAt)

      const known = yield* call("POST", `${one}/acknowledge`, as("member"))
      assert.strictEqual(known.status, 200, known.text)
      assert.match(known.body.incident.acknowledgedBy, /^user:/)
      const quiet = { durationSeconds: 3_600, reason: "Works on it" }
      const denied = yield* call("POST", `${one}/silence`, { ...as("member"), body: quiet })
      assert.strictEqual(denied.status, 403)
      const silenced = yield* call("POST", `${one}/silence`, { ...as("admin"), body: quiet })
      yield* fits(AlertView, silenced.body)
      assert.deepInclude(silenced.body, { state: "silenced", underlyingState: "firing" })
      assert.strictEqual(silenced.body.silence.reason, "Works on it")
      const again = yield* call("POST", `${one}/silence`, { ...as("admin"), body: { durationSeconds: 0 } })
      assert.deepInclude(again.body, { state: "firing", silence: null })

      const page = yield* call("GET", `${one}/history?limit=2`, as("member"))
      yield* fits(AlertHistoryPage, page.body)
      const rest = yield* call("GET", `${one}/history?limit=100&cursor=${page.body.nextCursor}`, as("member"))
      const changes = [...page.body.items, ...rest.body.items].map(({ change }: { change: string }) => change)
      assert.deepStrictEqual(changes.slice(0, 4), ["unsilenced", "silenced", "acknowledged", "firing"])
      assert.isNull(rest.body.nextCursor)
      // The mails to owner and admin of the organization.
      yield* untilAnswer(
        call("GET", `${one}/history`, as("member")),
        ({ body }) =>
          body.items.find(({ change }: { change: string }) => change === "firing").deliveries[0]?.channel ===
          "mail"
      )
      const elsewhere = yield* call("GET", `/v1/orgs/main/projects/shop/alerts/${made.body.id}/history`)
      assert.strictEqual(elsewhere.status, 404)
    })
  )
})
