import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { ago, database, dayMs, findings, look, makeProject, place, ready, setUp } from "./world.ts"

const stuck = {
  type: "Stalled",
  status: "true",
  reason: "NoProgress",
  message: "Several tries in a row changed nothing",
  since: ago(dayMs)
} as const

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("what maintenance finds", (it) => {
  it.effect("is told for every category, with evidence, risk and the command that would mend it", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("found")
      const main = yield* place(
        shop,
        database({
          server: "PostgreSQL 18.0",
          expiresAt: ago(-5 * dayMs),
          createdAt: ago(30 * dayMs),
          status: { memoryKills: { "0": 2 } }
        })
      )
      const cache = yield* place(shop, {
        kind: "Cache",
        name: "fast",
        spec: { region: "elsewhere" },
        status: {
          ...{ host: "h", port: 1, memoryMb: 256, server: "redis 7.0.15" },
          certificateExpiresAt: ago(-90 * dayMs)
        }
      })
      yield* place(shop, {
        kind: "DatabaseBranch",
        name: "old copy",
        environment: "preview",
        spec: {
          ...{ sourceEnvironment: "production", sourceDatabase: "main", sourceDatabaseId: main },
          expiresInDays: null
        },
        createdAt: ago(20 * dayMs)
      })
      const queue = yield* place(shop, { kind: "Queue", name: "jobs", phase: "failed", conditions: [stuck] })
      yield* place(shop, {
        kind: "Domain",
        name: "www.example.com",
        conditions: [
          { ...ready, reason: "DnsMoved", message: "DNS leads it elsewhere" },
          { ...ready, type: "Paused", reason: "PausedByUser", message: "by hand", since: ago(8 * dayMs) }
        ]
      })
      yield* place(shop, { kind: "Cache", name: "going", phase: "deleting" })
      yield* sql(
        `update resource set deletion_requested_at = now() - interval '3 hours' where name = 'going'`
      )
      for (const [uid, values] of [
        [cache, { "memory.pressure": 97, "storage.capacity": 20 }],
        [queue, { "queue.backlog": 4000, "queue.oldest_message_age_seconds": 60 }],
        [main, { "database.pool_saturation": 91 }]
      ] as const) {
        yield* sql(`insert into metric_now (org_id, uid, source, at, values, kept)
          values ('${shop.orgId}', '${uid}', 'host', now(), '${JSON.stringify(values)}', true)`)
      }
      const addressed =
        sql(`select from resource where project_id = '${shop.projectId}' and kind = 'Environment'
        and name = 'preview' and status ? 'address'`)
      yield* eventually("preview has an address", addressed, ({ length }) => length > 0)
      yield* setUp(shop)

      const found = yield* findings(shop)
      const told = found.map(({ category, severity, subject, remedy }) =>
        [category, severity, subject.name, remedy?.operationId ?? null, remedy?.risk ?? null].join(" ")
      )
      assert.deepStrictEqual(told.toSorted(), [
        "backups critical main backups.create write",
        "backups info main  ",
        "capacity critical fast caches.update write",
        "capacity warning jobs  ",
        "capacity warning main  ",
        "capacity warning main  ",
        "certificates warning main resources.retry write",
        "certificates warning www.example.com domains.check write",
        "cost info old copy databaseBranches.delete destructive",
        "drift critical jobs resources.retry write",
        "drift info www.example.com resources.resume write",
        "drift warning going resources.retry write",
        "security info preview  ",
        "security info www.example.com domains.update write",
        "security warning main resources.protect write",
        "versions warning main  "
      ])
      const byCommand = found.flatMap(({ remedy }) => (remedy === null ? [] : [remedy.command])).toSorted()
      assert.deepStrictEqual(byCommand, [
        "svc backups create found --environment production",
        "svc caches update found --environment production fast --sku cache-s1",
        "svc database branch delete found --environment preview 'old copy'",
        "svc domains check found --environment production www.example.com",
        "svc domains update found --environment production www.example.com --hsts 31536000",
        "svc protect found/production/Database/main",
        "svc resume found/production/Domain/www.example.com",
        "svc retry found/production/Cache/going",
        "svc retry found/production/Database/main",
        "svc retry found/production/Queue/jobs"
      ])
      const memory = found.find(({ subject }) => subject.id === cache)
      assert.deepInclude(memory.evidence, { percent: 97, threshold: 90 })
      assert.deepStrictEqual(memory.remedy.parameters, {
        path: { projectId: shop.projectId, cacheId: cache },
        body: { sku: "cache-s1" }
      })
      const old = found.find(({ category }) => category === "versions")
      assert.deepStrictEqual(old.evidence, { running: "18.0", fixed: "18.1" })

      // Once everything is well it is resolved, and nothing is found.
      yield* sql(`update resource set deleted_at = now(), deletion_requested_at = now()
        where project_id = '${shop.projectId}' and kind in ('Database', 'Cache', 'DatabaseBranch', 'Queue', 'Domain')`)
      const closed = yield* call("PUT", `${shop.path}/access`, { body: { previewMode: "organization" } })
      assert.strictEqual(closed.status, 200, closed.text)
      const run = yield* look(shop)
      assert.deepStrictEqual([run.opened, run.resolved], [0, told.length])
      assert.deepStrictEqual(yield* findings(shop), [])
      assert.strictEqual((yield* findings(shop, "resolved")).length, told.length)
    })
  )

  it.effect("is one finding over many runs, and can be dismissed until it changes", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("dismissed")
      const uid = yield* place(shop, { kind: "Queue", name: "jobs", phase: "failed", conditions: [stuck] })
      yield* setUp(shop, { categories: ["drift"] })
      const [first] = yield* findings(shop)
      const again = yield* look(shop)
      assert.deepStrictEqual([again.opened, again.resolved], [0, 0])
      const [second] = yield* findings(shop)
      assert.deepStrictEqual([second.id, second.firstSeenAt], [first.id, first.firstSeenAt])
      assert.isAbove(Date.parse(second.lastSeenAt), Date.parse(first.lastSeenAt))

      const one = `${shop.path}/maintenance/findings/${first.id}`
      const dismissed = yield* call("POST", `${one}/dismiss`, { body: { reason: "known, and harmless" } })
      assert.deepInclude(dismissed.body, { state: "dismissed", dismissedReason: "known, and harmless" })
      yield* look(shop)
      assert.deepStrictEqual(yield* findings(shop), [])
      assert.strictEqual((yield* findings(shop, "dismissed")).length, 1)
      assert.strictEqual((yield* call("GET", `${shop.path}/maintenance`)).body.openFindings, 0)

      const reopened = yield* call("POST", `${one}/reopen`)
      assert.deepInclude(reopened.body, { state: "open", dismissedReason: null })
      yield* call("POST", `${one}/dismiss`, { body: { reason: "again" } })
      const other = JSON.stringify([
        { ...stuck, reason: "DeadlineExceeded", lastTransitionAt: stuck.since, observedGeneration: 1 }
      ])
      yield* sql(`update resource set conditions = '${other}' where uid = '${uid}'`)
      yield* look(shop)
      assert.deepStrictEqual(
        (yield* findings(shop)).map(({ id, evidence }) => [id, evidence.reason]),
        [[first.id, "DeadlineExceeded"]]
      )

      // What comes back after it was mended is told as new.
      yield* sql(`update resource set conditions = '[]', phase = 'ready' where uid = '${uid}'`)
      yield* look(shop)
      yield* sql(`update resource set conditions = '${other}' where uid = '${uid}'`)
      assert.strictEqual((yield* look(shop)).opened, 1)
      const [back] = yield* findings(shop)
      assert.strictEqual(back.id, first.id)
      assert.isAbove(Date.parse(back.firstSeenAt), Date.parse(first.firstSeenAt))
    })
  )

  it.effect("is only of the categories and environments that were asked for", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const shop = yield* makeProject("narrow")
      yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* place(shop, { kind: "Queue", name: "a", phase: "failed", conditions: [stuck] })
      yield* place(shop, {
        ...{ kind: "Queue", name: "b", phase: "failed", conditions: [stuck] },
        environment: "preview"
      })
      yield* setUp(shop, { categories: ["drift"], environments: ["preview"] })
      const names = Effect.map(findings(shop), (all) => all.map(({ subject }) => subject.name))
      assert.deepStrictEqual(yield* names, ["b"])
      yield* call("PUT", `${shop.path}/maintenance`, { body: { categories: ["drift"] } })
      yield* look(shop)
      assert.sameMembers(yield* names, ["a", "b"])
    })
  )

  it.effect("stays as it is while nobody looks at it, unless what it is about is gone", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("left-out")
      const odd = { kind: "Queue", phase: "failed", conditions: [stuck] }
      const uids = {
        a: yield* place(shop, { ...odd, name: "a" }),
        b: yield* place(shop, { ...odd, name: "b", environment: "preview" })
      }
      yield* setUp(shop, { categories: ["drift"] })
      const names = Effect.map(findings(shop), (all) => all.map(({ subject }) => subject.name).toSorted())
      const lookWith = (body: object) =>
        Effect.andThen(call("PUT", `${shop.path}/maintenance`, { body }), look(shop))
      const mended = (uid: string) =>
        sql(`update resource set conditions = '[]', phase = 'ready' where uid = '${uid}'`)

      const first = yield* lookWith({ categories: ["certificates"] })
      assert.deepStrictEqual([first.resolved, yield* names], [0, ["a", "b"]])
      yield* mended(uids.a)
      const second = yield* lookWith({ categories: ["drift"], environments: ["preview"] })
      assert.deepStrictEqual([second.resolved, yield* names], [0, ["a", "b"]])
      yield* sql(
        `update resource set deleted_at = now(), deletion_requested_at = now() where uid = '${uids.b}'`
      )
      const third = yield* lookWith({ categories: ["certificates"], environments: ["staging"] })
      assert.deepStrictEqual([third.resolved, yield* names], [1, ["a"]])
      const fourth = yield* lookWith({ categories: ["drift"] })
      assert.deepStrictEqual([fourth.resolved, yield* names], [1, []])
    })
  )

  it.effect("stays as it is, and dismissed, while what it goes by is not measured", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("unmeasured")
      const placed = (name: string) =>
        place(shop, {
          ...{ kind: "Cache", name, createdAt: ago(30 * dayMs) },
          spec: { region: "elsewhere" },
          status: {
            ...{ host: "h", port: 1, memoryMb: 256, server: "redis 7.0.15", memoryKills: 1 },
            certificateExpiresAt: ago(-dayMs)
          }
        })
      const [fast, slow] = [yield* placed("fast"), yield* placed("slow")]
      const measured = (uid: string, percent: number, at: string) =>
        sql(`insert into metric_now (org_id, uid, source, at, values, kept)
          values ('${shop.orgId}', '${uid}', 'host', ${at}, '{"memory.pressure": ${percent}}', true)
          on conflict (org_id, uid, source) do update set at = excluded.at, values = excluded.values`)
      const sampled = (value: number) =>
        sql(`insert into metric_sample (org_id, uid, source, at, values)
          select '${shop.orgId}', '${fast}', 'host', at, '{"redis.hits": ${value}, "redis.misses": 0}'
          from generate_series(date_trunc('hour', now()) - interval '8 days', now(), interval '1 hour') as at`)
      yield* measured(fast, 97, "now()")
      yield* measured(slow, 97, "now()")
      yield* sampled(0)
      yield* setUp(shop, { categories: ["capacity", "certificates", "cost"] })
      const open = Effect.map(findings(shop), (all) =>
        all.map(({ category, subject }) => `${category} ${subject.name}`).toSorted()
      )
      const all = [
        ...["capacity fast", "capacity fast", "capacity slow", "capacity slow"],
        ...["certificates fast", "certificates slow", "cost fast"]
      ]
      assert.deepStrictEqual(yield* open, all)

      const [one] = (yield* findings(shop)).filter(({ summary }) => summary.startsWith('"slow" uses'))
      yield* call("POST", `${shop.path}/maintenance/findings/${one.id}/dismiss`, {
        body: { reason: "it is meant to be full" }
      })
      yield* sql(`delete from metric_sample where uid = '${fast}'`)
      yield* sql(`delete from metric_now where uid = '${fast}'`)
      yield* sql(`update resource set status = null where uid = '${fast}'`)
      yield* measured(slow, 20, "now() - interval '10 minutes'")
      assert.strictEqual((yield* look(shop)).resolved, 0)
      assert.strictEqual((yield* findings(shop, "dismissed")).length, 1)

      yield* sql(`update resource set spec = '{"region": 5}' where uid = '${slow}'`)
      assert.strictEqual((yield* look(shop)).resolved, 0)
      yield* sql(`update resource set spec = '{"region": "elsewhere"}' where uid = '${slow}'`)

      // What is known to be over is resolved; what comes back as it was is still dismissed.
      yield* sampled(1)
      yield* measured(fast, 20, "now()")
      yield* measured(slow, 20, "now()")
      assert.strictEqual((yield* look(shop)).resolved, 3)
      yield* measured(slow, 98, "now()")
      assert.strictEqual((yield* look(shop)).opened, 0)
      assert.deepStrictEqual(
        (yield* findings(shop, "dismissed")).map(({ id, dismissedReason }) => [id, dismissedReason]),
        [[one.id, "it is meant to be full"]]
      )
    })
  )

  it.effect("is a backup that is late or was never proved, and a log that is not archived", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* makeProject("backed-up")
      const made = (environment: string) => place(shop, database({ environment, createdAt: ago(60 * dayMs) }))
      const job = (uid: string, kind: string, status: string, age: string) =>
        sql(`insert into backup_job (org_id, id, kind, database_uid, lineage, reason, status, created_at, finished_at,
            consistent_at, due_at, error)
          values ('${shop.orgId}', gen_random_uuid(), '${kind}', '${uid}', '${uid}', 'schedule', '${status}',
            now() - interval '${age}', now() - interval '${age}', now() - interval '${age}', null,
            ${status === "failed" ? "'a page is damaged'" : "null"})`)
      const well = yield* made("well")
      yield* job(well, "backup", "succeeded", "20 hours")
      yield* job(well, "drill", "succeeded", "6 days")
      const late = yield* made("late")
      yield* job(late, "backup", "succeeded", "2 days")
      yield* job(late, "drill", "succeeded", "1 day")
      const unproved = yield* made("unproved")
      yield* job(unproved, "backup", "succeeded", "1 hour")
      yield* job(unproved, "drill", "succeeded", "15 days")
      const damaged = yield* made("damaged")
      yield* job(damaged, "backup", "succeeded", "1 hour")
      yield* job(damaged, "drill", "succeeded", "2 days")
      yield* job(damaged, "drill", "failed", "1 hour")
      yield* sql(`insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed, trouble, trouble_message,
          trouble_since)
        values ('${shop.orgId}', '${well}', '${well}', 'k', '', 'ArchivingFailing', 'the disk is full', now())`)
      yield* setUp(shop, { categories: ["backups"] })
      assert.deepStrictEqual(
        (yield* findings(shop))
          .map(({ severity, subject, remedy }) => [
            severity,
            subject.environment,
            remedy?.parameters.body?.drill ?? null
          ])
          .toSorted(),
        [
          ["critical", "damaged", true],
          ["critical", "well", null],
          ["warning", "late", false],
          ["warning", "unproved", true]
        ]
      )
      const [drill] = (yield* findings(shop)).filter(({ subject }) => subject.id === damaged)
      assert.strictEqual(drill.evidence.error, "a page is damaged")
    })
  )

  it.effect("counts the keys of a gateway that nobody uses, and tells members none of them", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* makeProject("keys")
      const gateway = yield* place(shop, {
        ...{ kind: "AiGateway", name: "ai" },
        spec: { allowedModels: ["svc/fast"], monthlyBudgetUsd: 5, redactPrompts: true }
      })
      const key = (name: string, values: string) =>
        sql(`insert into ai_gateway_key (org_id, id, gateway_uid, name, key_prefix, digest, created_at, last_used_at,
            revoked_at)
          values ('${shop.orgId}', gen_random_uuid(), '${gateway}', '${name}', 'svcgw_${name}...',
            sha256('${name}'), now() - interval '200 days', ${values}) returning id`)
      const made = [
        ...(yield* key("never", "null, null")),
        ...(yield* key("once", "now() - interval '91 days', null")),
        ...(yield* key("often", "now() - interval '1 day', null")),
        ...(yield* key("revoked", "null, now()"))
      ]
      yield* setUp(shop, { categories: ["security"] })
      const [found, ...more] = (yield* findings(shop)).filter(({ subject }) => subject.id === gateway)
      assert.deepStrictEqual(more, [])
      assert.deepInclude(found, {
        severity: "warning",
        summary: '2 keys of the gateway "ai" have not been used for 90 days',
        evidence: { keys: 2 },
        remedy: null
      })
      const told = JSON.stringify(found)
      for (const hidden of [...made.map(({ id }) => String(id)), "svcgw_", "never", "once"])
        assert.notInclude(told, hidden)
    })
  )

  it.effect("is a budget that is nearly used up", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const shop = yield* makeProject("spending")
      const budget = yield* call("PUT", `${shop.path}/budget`, {
        body: { monthlyCapUsd: 10, alertThresholdPercent: 50, hardStop: true }
      })
      assert.strictEqual(budget.status, 200, budget.text)
      const spend = (microUsd: number) =>
        sql(`insert into budget_month (org_id, project_uid, month, spent)
          values ('${shop.orgId}', '${shop.projectId}', date_trunc('month', now() at time zone 'utc'), ${microUsd})
          on conflict (org_id, project_uid, month) do update set spent = excluded.spent`)
      yield* spend(4_000_000)
      yield* setUp(shop, { categories: ["capacity"] })
      assert.deepStrictEqual(yield* findings(shop), [])
      yield* spend(6_000_000)
      yield* look(shop)
      const [first] = yield* findings(shop)
      assert.deepInclude(first, { severity: "warning", remedy: null })
      assert.strictEqual(first.evidence.percent, 60)
      yield* spend(9_900_000)
      yield* look(shop)
      assert.deepStrictEqual(
        (yield* findings(shop)).map(({ id, severity }) => [id, severity]),
        [[first.id, "critical"]]
      )
    })
  )

  it.effect("is a server that nobody used for a week, if all of the week was measured", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* makeProject("idle")
      const cache = (name: string) =>
        place(shop, {
          ...{ kind: "Cache", name, createdAt: ago(30 * dayMs) },
          spec: { region: "elsewhere" }
        })
      const sampled = (uid: string, values: object, from: string, to = "now()") =>
        sql(`insert into metric_sample (org_id, uid, source, at, values)
          select '${shop.orgId}', '${uid}', 'host', at, '${JSON.stringify(values)}'
          from generate_series(date_trunc('hour', now()) - interval '${from}', ${to}, interval '1 hour') as at`)
      const nothing = { "redis.hits": 0, "redis.misses": 0, "redis.clients": 1 }
      const idle = yield* cache("idle")
      yield* sampled(idle, nothing, "8 days")
      const used = yield* cache("used")
      yield* sampled(used, nothing, "8 days", "date_trunc('hour', now()) - interval '3 hours'")
      yield* sampled(used, { "redis.hits": 0, "redis.misses": 0.1 }, "2 hours")
      yield* sampled(yield* cache("measured lately"), nothing, "3 days")
      yield* cache("never measured")
      const db = yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* sampled(db, { "database.connections": 0 }, "8 days")
      yield* setUp(shop, { categories: ["cost"] })
      assert.deepStrictEqual(
        (yield* findings(shop)).map(({ subject, remedy }) => [subject.id, remedy.command]).toSorted(),
        [
          [idle, "svc caches delete idle --environment production idle"],
          [db, "svc database delete idle --environment production"]
        ].toSorted()
      )
    })
  )

  it.effect("is kept for a category that cannot be looked at, whose run says so", () =>
    Effect.gen(function* () {
      const { sql } = yield* Plane
      const shop = yield* makeProject("broken")
      yield* place(shop, database({ createdAt: ago(30 * dayMs) }))
      yield* place(shop, { kind: "Queue", name: "jobs", phase: "failed", conditions: [stuck] })
      yield* setUp(shop, { categories: ["backups", "drift"] })
      const before = (yield* findings(shop)).length
      yield* sql(`alter table backup_job rename to backup_job_away`)
      const run = yield* Effect.ensuring(look(shop), sql(`alter table backup_job_away rename to backup_job`))
      assert.isString(run.categories.find((one: { category: string }) => one.category === "backups").problem)
      assert.deepStrictEqual([run.opened, run.resolved], [0, 0])
      assert.strictEqual((yield* findings(shop)).length, before)
    })
  )
})
