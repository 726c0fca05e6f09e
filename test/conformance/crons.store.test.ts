import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { CronList, CronRunPage, CronRunView, CronView } from "#src/crons/api.ts"
import { receiver } from "#test/crons/receiver.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const project = "/v1/orgs/main/projects/shop"
const base = `${project}/crons`
const yearly = "0 0 1 1 *"
const job = (name: string, values: object = {}) => ({
  name,
  schedule: yearly,
  target: { kind: "http", path: "/jobs" },
  ...values
})

layer(testPlane(), { excludeTestServices: true })("crons", (it) => {
  it.effect("are created, read, changed, listed by name and deleted", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      const asked = Date.now()
      const made = yield* call("POST", base, { body: job("nightly", { schedule: " 30  2 * *  mon-fri" }) })
      assert.strictEqual(made.status, 201)
      yield* fits(CronView, made.body)
      const { id, createdAt, updatedAt, nextRunAt, ...rest } = made.body
      assert.match(createdAt, /Z$/)
      assert.strictEqual(createdAt, updatedAt)
      assert.isAbove(Date.parse(nextRunAt), asked)
      assert.deepStrictEqual(rest, {
        name: "nightly",
        environment: "production",
        schedule: "30 2 * * MON-FRI",
        timezone: "UTC",
        enabled: true,
        catchUp: false,
        target: { kind: "http", path: "/jobs", method: "POST" },
        retry: { maxAttempts: 3, initialDelaySeconds: 10, maxDelaySeconds: 3600 },
        concurrencyPolicy: "skip",
        timeoutSeconds: 300,
        lastRunAt: null
      })
      assert.strictEqual(
        (yield* call("POST", `${base}?environment=preview`, { body: job("nightly") })).status,
        201
      )
      yield* call("POST", base, { body: job("early") })
      const all = yield* call("GET", base)
      yield* fits(CronList, all.body)
      assert.deepStrictEqual(
        all.body.map((one: { name: string; environment: string }) => [one.name, one.environment]),
        [
          ["early", "production"],
          ["nightly", "preview"],
          ["nightly", "production"]
        ]
      )
      const some = yield* call("GET", `${base}?environment=preview`)
      assert.strictEqual(some.body.length, 1)

      const one = `${base}/${id}`
      const read = yield* call("GET", one)
      yield* fits(CronView, read.body)
      assert.match(read.headers.get("etag") ?? "", /^"\d+"$/)
      const changed = yield* call("PATCH", one, {
        body: { timezone: "Europe/Berlin", retry: { maxAttempts: 1 }, enabled: false }
      })
      assert.deepStrictEqual(
        [changed.status, changed.body.retry, changed.body.nextRunAt, changed.body.timezone],
        [200, { maxAttempts: 1, initialDelaySeconds: 10, maxDelaySeconds: 3600 }, null, "Europe/Berlin"]
      )
      const crossed = yield* call("PATCH", one, { body: { retry: { maxDelaySeconds: 1 } } })
      assert.deepStrictEqual(
        [crossed.status, crossed.body.errors[0].pointer],
        [422, "/retry/maxDelaySeconds"]
      )
      assert.strictEqual((yield* call("DELETE", one)).status, 200)
      yield* untilAnswer(call("GET", one), ({ status }) => status === 404)
      assert.strictEqual((yield* call("PATCH", one, { body: { enabled: true } })).status, 404)
    })
  )

  it.effect("that were stored before a field came are not changed by being given its default", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      const { id } = (yield* call("POST", base, { body: job("older") })).body
      yield* sql(`update resource set spec = spec - 'timezone' - 'retry' where uid = '${id}'`)
      const generation = () =>
        Effect.map(sql(`select generation from resource where uid = '${id}'`), ([row]) => row?.["generation"])
      const same = yield* call("PATCH", `${base}/${id}`, { body: { timezone: "UTC" } })
      assert.deepStrictEqual([same.status, same.body.timezone, yield* generation()], [200, "UTC", 1])
      const other = yield* call("PATCH", `${base}/${id}`, { body: { enabled: false } })
      assert.deepStrictEqual([other.status, other.body.enabled, yield* generation()], [200, false, 2])
      const [stored] = yield* sql(
        `select spec ? 'timezone' and spec ? 'retry' as whole from resource where uid = '${id}'`
      )
      assert.isTrue(stored?.["whole"])
    })
  )

  it.effect("name queues that are there, and keep them from being deleted", () =>
    Effect.gen(function* () {
      const { call, session } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
      const queues = `${project}/queues`
      const toQueue = { target: { kind: "queue", queue: "letters" } }
      const lost = yield* call("POST", base, { body: job("posting", toQueue) })
      assert.deepStrictEqual(
        [lost.status, lost.body.errors],
        [
          422,
          [
            {
              pointer: "/target/queue",
              message: 'names the queue "letters", which "production" does not have'
            }
          ]
        ]
      )
      const queue = yield* call("POST", queues, { body: { name: "letters" } })
      const elsewhere = yield* call("POST", `${base}?environment=preview`, { body: job("posting", toQueue) })
      assert.strictEqual(elsewhere.status, 422)
      const made = yield* call("POST", base, { body: job("posting", toQueue) })
      assert.strictEqual(made.status, 201, made.text)
      const one = `${base}/${made.body.id}`
      const moved = yield* call("PATCH", one, { body: { target: { kind: "queue", queue: "others" } } })
      assert.deepStrictEqual([moved.status, moved.body.errors[0].pointer], [422, "/target/queue"])
      const used = yield* call("DELETE", `${queues}/${queue.body.id}`, { token: session })
      assert.deepStrictEqual([used.status, used.body.code], [409, "in_use"])
      assert.include(used.body.detail, "posting")
      yield* call("PATCH", one, { body: { target: { kind: "http", path: "/jobs" } } })
      const free = yield* call("DELETE", `${queues}/${queue.body.id}`, { token: session })
      assert.strictEqual(free.status, 200, free.text)
    })
  )

  it.effect("refuse what cannot be, and name every fault", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const faults: ReadonlyArray<readonly [object, string]> = [
        [{ schedule: "* * * *" }, "/schedule"],
        [{ schedule: "* * * * * *" }, "/schedule"],
        [{ schedule: "@daily" }, "/schedule"],
        [{ schedule: "0 0 31 2 *" }, "/schedule"],
        [{ schedule: "61 * * * *" }, "/schedule"],
        [{ timezone: "Mars/Olympus" }, "/timezone"],
        [{ timezone: "+02:00" }, "/timezone"],
        [{ target: { kind: "http", path: "//evil.example" } }, "/target/path"],
        [{ target: { kind: "http", path: "/x", method: "GET" } }, "/target/method"],
        [{ target: { kind: "http", path: "/x", body: "x".repeat(122_880) } }, "/target/body"],
        [{ retry: { maxAttempts: 11 } }, "/retry/maxAttempts"],
        [{ retry: { initialDelaySeconds: 0 } }, "/retry/initialDelaySeconds"],
        [{ concurrencyPolicy: "forbid" }, "/concurrencyPolicy"],
        [{ timeoutSeconds: 0 }, "/timeoutSeconds"],
        [{ catchUp: true }, "/catchUp"],
        [{ name: "X" }, "/name"]
      ]
      for (const [values, pointer] of faults) {
        const refused = yield* call("POST", base, { body: job("bad", values) })
        assert.strictEqual(refused.status, 422, pointer)
        assert.include(
          refused.body.errors.map((fault: { pointer: string }) => fault.pointer),
          pointer,
          JSON.stringify(refused.body)
        )
      }
      const many = yield* call("POST", base, { body: { name: "X", schedule: "x", timezone: "x" } })
      assert.deepStrictEqual(many.body.errors.map(({ pointer }: { pointer: string }) => pointer).sort(), [
        "/name",
        "/schedule",
        "/target",
        "/timezone"
      ])
      assert.strictEqual(
        (yield* call("POST", base, { raw: "{", headers: { "content-type": "application/json" } })).status,
        400
      )
      assert.strictEqual(
        (yield* call("POST", base, { raw: "x", headers: { "content-type": "text/plain" } })).status,
        415
      )
      assert.strictEqual(
        (yield* call("POST", base, { raw: JSON.stringify(job("big", { pad: "x".repeat(1_100_000) })) }))
          .status,
        413
      )
    })
  )

  it.effect("are triggered by hand, and every run can be looked at", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const app = yield* receiver(({ path }) => (path === "/bad" ? { status: 404 } : undefined))
      yield* call("PATCH", `${project}/environments/production`, { body: { origin: app.origin } })
      const made = yield* call("POST", base, {
        body: job("by-hand", { target: { kind: "http", path: "/jobs?a=b", method: "PUT", body: { n: 1 } } })
      })
      const one = `${base}/${made.body.id}`
      const key = { "idempotency-key": "once" }
      const run = yield* call("POST", `${one}/trigger`, { headers: key })
      assert.strictEqual(run.status, 202)
      yield* fits(CronRunView, run.body)
      assert.deepStrictEqual([run.body.trigger, run.body.cronId], ["manual", made.body.id])
      const again = yield* call("POST", `${one}/trigger`, { headers: key })
      assert.strictEqual(again.body.id, run.body.id)
      const done = yield* untilAnswer(
        call("GET", `${one}/runs/${run.body.id}`),
        ({ body }) => body.finishedAt !== null
      )
      yield* fits(CronRunView, done.body)
      assert.deepStrictEqual(
        [done.body.status, done.body.attempts.length, done.body.attempts[0].statusCode, done.body.reason],
        ["succeeded", 1, 200, null]
      )
      assert.strictEqual(app.received.length, 1)
      assert.deepStrictEqual([app.received[0]?.method, app.received[0]?.path], ["PUT", "/jobs?a=b"])
      assert.strictEqual((yield* call("GET", one)).body.lastRunAt, done.body.startedAt)

      yield* call("PATCH", one, { body: { target: { kind: "http", path: "/bad" } } })
      const failed = yield* untilAnswer(
        Effect.flatMap(call("POST", `${one}/trigger`), ({ body }) =>
          untilAnswer(call("GET", `${one}/runs/${body.id}`), (answer) => answer.body.finishedAt !== null)
        ),
        ({ body }) => body.status === "failed"
      )
      // Other answers than these are final at once: it would be refused again.
      assert.deepStrictEqual([failed.body.attempts.length, failed.body.reason], [1, "The app answered 404"])
      const page = yield* call("GET", `${one}/runs?limit=1`)
      yield* fits(CronRunPage, page.body)
      assert.strictEqual(page.body.items[0].id, failed.body.id)
      const next = yield* call("GET", `${one}/runs?limit=1&cursor=${page.body.nextCursor}`)
      assert.notStrictEqual(next.body.items[0].id, failed.body.id)
      assert.strictEqual((yield* call("GET", `${one}/runs?cursor=nope`)).status, 422)
      assert.strictEqual((yield* call("GET", `${one}/runs?limit=0`)).status, 422)
      assert.strictEqual((yield* call("GET", `${one}/runs/nope`)).status, 404)
      assert.strictEqual((yield* call("GET", `${one}/runs/${crypto.randomUUID()}`)).status, 404)
      const other = yield* call("POST", base, { body: job("other") })
      assert.strictEqual((yield* call("GET", `${base}/${other.body.id}/runs/${run.body.id}`)).status, 404)
      const audited = yield* sql(
        `select resource, outcome from audit_log where operation = 'crons.trigger' and outcome = 202`
      )
      assert.isTrue(audited.some(({ resource }) => resource === run.body.id))
      yield* sql(`update organization set billing_status = 'past_due' where slug = 'main'`)
      assert.strictEqual((yield* call("POST", `${one}/trigger`)).status, 402)
      yield* sql(`update organization set billing_status = 'active' where slug = 'main'`)
      yield* call("DELETE", one)
      yield* untilAnswer(call("GET", one), ({ status }) => status === 404)
      const left = yield* sql(`select count(*)::int as n from cron_run where cron_uid = '${made.body.id}'`)
      assert.strictEqual(left[0]?.["n"], 0)
    })
  )

  it.effect("come and go by manifest, and an export plans to nothing", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const manifest = {
        version: 1,
        organization: "main",
        projects: [
          {
            name: "Timed",
            slug: "timed",
            runtimeClass: "scale-to-zero",
            queues: [{ name: "jobs", environment: "preview" }],
            crons: [
              {
                name: "hourly",
                environment: "production",
                schedule: "0  * * * *",
                target: { kind: "http", path: "/h" }
              },
              {
                name: "daily",
                environment: "preview",
                schedule: "0 3 * * sun",
                timezone: "Asia/Tokyo",
                concurrencyPolicy: "replace",
                target: { kind: "queue", queue: "jobs", body: [1] }
              }
            ]
          }
        ]
      }
      const plan = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: manifest })
      assert.deepStrictEqual([plan.status, plan.body.blockers], [200, []], plan.text)
      const applied = yield* call("POST", "/v1/orgs/main/manifest/apply", {
        body: { planId: plan.body.planId }
      })
      assert.strictEqual(applied.status, 202, applied.text)
      const exported = yield* call("GET", "/v1/orgs/main/manifest")
      const replanned = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: exported.body })
      assert.deepStrictEqual(
        replanned.body.changes.filter(({ action }: { action: string }) => action !== "noop"),
        [],
        replanned.text
      )
      const pruned = yield* call(
        "POST",
        "/v1/orgs/main/manifest/plan?prune=true&confirm=timed&confirm=shop",
        {
          body: {
            ...manifest,
            projects: manifest.projects.map(({ crons, ...one }) => ({ ...one, queues: [] }))
          }
        }
      )
      assert.deepStrictEqual(
        pruned.body.blockers.map(({ pointer, code }: { pointer: string; code: string }) => [pointer, code]),
        [["/projects/0/queues", "in_use"]],
        pruned.text
      )
      const bad = structuredClone(manifest)
      const [first] = bad.projects[0]?.crons ?? []
      if (first !== undefined) first.schedule = "0 0 31 2 *"
      const blocked = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: bad })
      assert.deepStrictEqual(
        blocked.body.blockers.map(({ pointer, code }: { pointer: string; code: string }) => [pointer, code]),
        [["/projects/0/crons/0/schedule", "invalid_spec"]]
      )
    })
  )
})
