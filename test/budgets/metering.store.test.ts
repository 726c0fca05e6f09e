/** What runs on and costs something is counted by the hour, once, whoever counts and whatever happened in between. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { AppSpec } from "#schemas/app.ts"
import { GatewayUsage } from "#src/ai-gateways/GatewayUsage.ts"
import { Apps } from "#src/apps/Apps.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { BudgetUsage } from "#src/budgets/BudgetUsage.ts"
import { makeMeter } from "#src/budgets/metering.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import { builtIn } from "#src/catalog/content.ts"
import { CurrentMetrics } from "#src/metrics/CurrentMetrics.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { withinOneHour } from "./periods.ts"

const stack = Layer.mergeAll(
  Budgets.layer,
  BudgetUsage.layer,
  Resources.layer,
  Apps.layer,
  GatewayUsage.layer,
  Ledger.layer,
  CurrentMetrics.layer,
  Catalog.layerBuiltIn
).pipe(Layer.provide(KeyRing.layerEphemeral), Layer.provideMerge(testDb()), Layer.provide(withinOneHour))

const cacheHour = builtIn.caches["cache-n1"] * 1_000_000
const databaseHour = builtIn.databases["db-n1"] * 1_000_000

/** A project of an organization of its own, of which everything before the last `hours` whole hours is counted. */
const newProject = Effect.fnUntraced(function* (hours: number) {
  const { engine: sql } = yield* Db
  const { id: orgId } = yield* makeOrganization()
  const place = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
  yield* sql`update metering_organization
    set metered_until = date_trunc('hour', now(), 'UTC') - make_interval(hours => ${hours}::int)
    where org_id = ${orgId}::uuid`
  return { orgId, place, ...place }
})
/** It has been ready since so many hours before the last whole hour, or was deleted so many before it. */
const lived = Effect.fnUntraced(function* (orgId: string, uid: string, from: number, to: number | null) {
  const { engine: sql } = yield* Db
  yield* sql`update resource set phase = 'ready' where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
  if (to !== null) {
    yield* (yield* Resources).write(orgId, [{ action: "delete", uid }], actor)
    yield* sql`update resource set deleted_at = now(), spec = '{}' where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
  }
  yield* sql`update metered_period set since = date_trunc('hour', now(), 'UTC') - ${from}::float8 * interval '1 hour',
      until = case when until is not null then date_trunc('hour', now(), 'UTC') - ${to}::float8 * interval '1 hour' end
    where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
})
const aGateway = ({ projectId, production }: { projectId: string; production: string }, uid: string) =>
  ({
    action: "create",
    uid,
    kind: "AiGateway",
    projectId,
    environment: "production",
    name: "ai",
    parentUid: production,
    spec: { allowedModels: [] },
    managedBy: "api"
  }) as const
/** Calls that ended today, in billionths of a US dollar. */
const callsOf = Effect.fnUntraced(function* (orgId: string, gateway: string, spent: number) {
  const { engine: sql } = yield* Db
  yield* sql`insert into ai_gateway_usage (org_id, gateway_uid, day, model, gateway_key, requests, input_tokens, output_tokens, spent)
    values (${orgId}::uuid, ${gateway}::uuid, (now() at time zone 'UTC')::date, 'm', ${uuid()}::uuid, 1, 1, 1, ${spent}::bigint)`
})
const meterAll = Effect.fnUntraced(function* (orgId: string) {
  const meter = yield* makeMeter
  let steps = 0
  while (yield* meter(orgId)) steps++
  return steps
})
const spentOf = Effect.fnUntraced(function* (orgId: string) {
  const { engine: sql } = yield* Db
  const [row] = yield* sql<{ readonly month: number; readonly usage: number }>`
    select (select coalesce(sum(spent), 0)::float8 from budget_month where org_id = ${orgId}::uuid) as month,
      (select coalesce(sum(spent), 0)::float8 from budget_usage where org_id = ${orgId}::uuid) as usage`
  return row
})

layer(stack, { excludeTestServices: true, timeout: "3 minutes" })("metering", (it) => {
  it.effect("counts servers by their hours, size and standbys, to the second, once", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const { orgId, place, projectId, production } = yield* newProject(30)
      const cache = uuid()
      const gone = uuid()
      const database = uuid()
      const changes = [
        { ...cacheChange(place, "c1"), uid: cache },
        { ...cacheChange(place, "c2"), uid: gone },
        {
          action: "create",
          uid: database,
          kind: "Database",
          projectId,
          environment: "production",
          name: "main",
          parentUid: production,
          spec: { sku: "db-n1", region: "local", credentialVersion: 1, replicas: 2 },
          managedBy: "api"
        }
      ] as const
      yield* resources.write(orgId, changes, actor)
      yield* lived(orgId, cache, 100, null)
      yield* lived(orgId, gone, 20, 17.5)
      yield* lived(orgId, database, 4, null)
      // A step ends with the day.
      assert.isAtLeast(yield* meterAll(orgId), 2)
      const expected = 30 * cacheHour + 2.5 * cacheHour + 4 * 3 * databaseHour
      assert.deepStrictEqual(yield* spentOf(orgId), { month: expected, usage: expected })
      assert.strictEqual(yield* meterAll(orgId), 0)

      const usage = yield* BudgetUsage
      const range = { from: "2020-01-01", to: undefined }
      const list = yield* usage.list(orgId, projectId, range, 100)
      const of = (uid: string) =>
        list.filter((one) => one.uid === uid).reduce((sum, { microUsd }) => sum + microUsd, 0)
      assert.strictEqual(of(database), 12 * databaseHour)
      assert.deepInclude(
        list.find(({ uid }) => uid === gone),
        { kind: "Cache", name: "c2", item: "server" }
      )
      assert.deepStrictEqual(yield* usage.list(orgId, projectId, range, 1, list.at(0)), list.slice(1, 2))
      const { id: another } = yield* makeOrganization()
      assert.isEmpty(yield* usage.list(another, projectId, range, 100))
    })
  )

  it.effect("counts each hour once, however many count at the same time", () =>
    Effect.gen(function* () {
      const { orgId, place } = yield* newProject(50)
      const uid = uuid()
      yield* (yield* Resources).write(orgId, [{ ...cacheChange(place, "c"), uid }], actor)
      yield* lived(orgId, uid, 100, null)
      const gateway = uuid()
      yield* (yield* Resources).write(orgId, [aGateway(place, gateway)], actor)
      yield* callsOf(orgId, gateway, 9_000)
      yield* Effect.forEach(Array.from({ length: 8 }), () => meterAll(orgId), { concurrency: "unbounded" })
      yield* meterAll(orgId)
      const expected = 50 * cacheHour + 9
      assert.deepStrictEqual(yield* spentOf(orgId), { month: expected, usage: expected })
    })
  )

  it.effect("counts disks, backups, and what gateways have spent since", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { orgId, place, projectId, production } = yield* newProject(2)
      const database = uuid()
      const gateway = uuid()
      const aDatabase = {
        action: "create",
        uid: database,
        kind: "Database",
        projectId,
        environment: "production",
        name: "main",
        parentUid: production,
        spec: { sku: "free", region: "local" },
        managedBy: "api"
      } as const
      yield* (yield* Resources).write(orgId, [aDatabase, aGateway(place, gateway)], actor)
      yield* lived(orgId, database, 9, null)
      yield* sql`insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed)
        values (${orgId}::uuid, ${database}::uuid, ${database}::uuid, 'k', '\\x00')`
      yield* sql`insert into backup_object (org_id, lineage, name, key, plain_bytes, stored_bytes, plain_sha256, stored_sha256)
        select ${orgId}::uuid, ${database}::uuid, 'o' || i, 'k', 1, 365 * 1024 * 1024 * 1024::bigint, '', ''
        from generate_series(1, 2) i`
      yield* sql`insert into metric_now (org_id, uid, source, at, values, kept)
        values (${orgId}::uuid, ${database}::uuid, 'host', now(), '{"disk.used_bytes": 783831531520}', true)`
      yield* callsOf(orgId, gateway, 7_000_000)
      yield* meterAll(orgId)
      // 730 GiB for two of the 730 hours of a month, on the disk and in the repository.
      const stored = Math.round(
        (builtIn.backups.perGibMonthUsd + builtIn.disk.perGibMonthUsd) * 2 * 1_000_000
      )
      assert.deepStrictEqual(yield* spentOf(orgId), { month: stored + 7_000, usage: stored + 7_000 })

      yield* callsOf(orgId, gateway, 500)
      yield* sql`update metering_organization set metered_until = metered_until - interval '1 hour' where org_id = ${orgId}::uuid`
      yield* meterAll(orgId)
      const after = yield* spentOf(orgId)
      assert.deepStrictEqual(after, { month: stored * 1.5 + 7_001, usage: stored * 1.5 + 7_001 })
    })
  )

  it.effect("a size counts as long as it was one, and nothing counts before it was ready", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const resources = yield* Resources
      const { orgId, place } = yield* newProject(10)
      const uid = uuid()
      const waiting = uuid()
      yield* resources.write(
        orgId,
        [
          { ...cacheChange(place, "c"), uid },
          { ...cacheChange(place, "w"), uid: waiting }
        ],
        actor
      )
      yield* lived(orgId, uid, 100, null)
      const spec = cacheChange(place, "c", { sku: "cache-s2" }).spec
      yield* resources.write(orgId, [{ action: "update", uid, spec, name: "renamed" }], actor)
      const at = sql`date_trunc('hour', now(), 'UTC') - interval '4 hours'`
      yield* sql`update metered_period set until = ${at} where uid = ${uid}::uuid and until is not null`
      yield* sql`update metered_period set since = ${at} where uid = ${uid}::uuid and until is null`
      yield* meterAll(orgId)
      const expected = 6 * cacheHour + 4 * builtIn.caches["cache-s2"] * 1_000_000
      assert.deepStrictEqual(yield* spentOf(orgId), { month: expected, usage: expected })
    })
  )

  it.effect(
    "counts each instance of an app from its start to its end, and its memory alone while it is paused",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const [resources, apps, usage] = [yield* Resources, yield* Apps, yield* BudgetUsage]
        const { orgId, projectId, production } = yield* newProject(6)
        const uid = uuid()
        const ref = { orgId, uid, fence: 1n }
        const spec = (values: object) =>
          Schema.decodeUnknownSync(AppSpec)({ region: "local", cpus: 2, memoryMb: 1_000, ...values })
        const app = (uid: string, environment: string) =>
          ({
            action: "create",
            uid,
            kind: "App",
            projectId,
            environment,
            name: "app",
            parentUid: production,
            spec: spec({ cpus: 3 }),
            managedBy: "api"
          }) as const
        const change = (values: object) =>
          resources.write(orgId, [{ action: "update", uid, spec: spec(values) }], actor)
        const start = Effect.fnUntraced(function* (instance: string) {
          const made = { uid: instance, deployment: uuid(), revision: "a", port: 80, at: new Date() }
          assert.isTrue(yield* apps.add(ref, made))
          assert.isTrue(yield* apps.making(ref, instance, { cpus: 2, memoryMb: 1_000 }))
          assert.isTrue(yield* apps.started(ref, instance, "10.0.0.1:80", new Date()))
        })
        yield* resources.write(orgId, [app(uid, "production")], actor)
        yield* apps.begin({ ...ref, environmentUid: production })
        const [one, other] = [uuid(), uuid()]
        yield* Effect.forEach([one, other], start)
        // What runs has the size with which its container was made.
        yield* change({ cpus: 4 })
        yield* apps.ended(ref, other, { at: new Date(), exitCode: 0, reason: "" }, undefined)
        yield* apps.power(ref, "paused")
        const hour = (before: number) =>
          sql`date_trunc('hour', now(), 'UTC') - ${before}::float8 * interval '1 hour'`
        yield* sql`update metered_period set since = ${hour(6)}, until = ${hour(2)} where uid = ${one}::uuid and cpus = 2`
        yield* sql`update metered_period set since = ${hour(2)} where uid = ${one}::uuid and cpus = 0`
        yield* sql`update metered_period set since = ${hour(5)}, until = ${hour(4.5)} where uid = ${other}::uuid`
        yield* meterAll(orgId)
        const { perVcpuSecondUsd, perMibSecondUsd } = builtIn.apps
        const memory = 1_000 * perMibSecondUsd
        const expected = Math.round(3_600_000_000 * (4.5 * (2 * perVcpuSecondUsd + memory) + 2 * memory))
        assert.deepStrictEqual(yield* spentOf(orgId), { month: expected, usage: expected })
        const list = yield* usage.list(orgId, projectId, { from: "2020-01-01", to: undefined }, 100)
        for (const entry of list)
          assert.deepInclude(entry, { uid, kind: "App", name: "app", item: "instances" })

        const running = sql`select uid, cpus::float8 as cpus from metered_period
        where org_id = ${orgId}::uuid and until is null`
        yield* apps.power(ref, "awake")
        assert.deepStrictEqual(yield* running, [{ uid: one, cpus: 2 }])
        yield* (yield* Budgets).enforce({
          ...{ uid: uuid(), orgId, projectId, generation: 1 },
          ...{ monthlyCap: expected, alertPercent: null, hardStop: true }
        })
        // As the release before several instances stored it.
        yield* sql`update resource set spec = spec - 'maxInstances' where uid = ${uid}::uuid`
        for (const more of [{ cpus: 4.5 }, { memoryMb: 1_001 }, { instances: 2 }, { maxInstances: 2 }])
          assert.deepInclude(yield* Effect.flip(change({ cpus: 4, ...more })), { code: "budget_exhausted" })
        yield* change({ cpus: 1, port: 81 })
        assert.deepInclude(yield* Effect.flip(resources.write(orgId, [app(uuid(), "preview")], actor)), {
          code: "budget_exhausted"
        })
        yield* apps.forget(ref)
        assert.deepStrictEqual(yield* running, [])
      })
  )

  it.effect("alerts, and under a hard stop nothing more is made that costs", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const resources = yield* Resources
      const budgets = yield* Budgets
      const { orgId, place, projectId } = yield* newProject(10)
      yield* sql`insert into webhook (org_id, id, url, events, key_id, sealed)
        values (${orgId}, ${uuid()}, 'https://hooks.example.test/', '{budget.alert,budget.exceeded}', 'k', '\\x00')`
      const uid = uuid()
      yield* resources.write(orgId, [{ ...cacheChange(place, "c"), uid }], actor)
      yield* lived(orgId, uid, 100, null)
      yield* budgets.enforce({
        uid: uuid(),
        orgId,
        projectId,
        monthlyCap: 10 * cacheHour,
        alertPercent: 50,
        hardStop: true,
        generation: 1
      })
      yield* resources.write(orgId, [cacheChange(place, "d")], actor)
      yield* meterAll(orgId)
      const told = yield* sql<{ readonly type: string }>`
        select type from webhook_event where org_id = ${orgId}::uuid order by type`
      assert.deepStrictEqual(
        told.map(({ type }) => type),
        ["budget.alert", "budget.exceeded"]
      )
      const refused = yield* Effect.flip(resources.write(orgId, [cacheChange(place, "e")], actor))
      assert.deepInclude(refused, { _tag: "Refused", code: "budget_exhausted" })
      const larger = cacheChange(place, "c", { sku: "cache-s1" }).spec
      const grown = yield* Effect.flip(
        resources.write(orgId, [{ action: "update", uid, spec: larger }], actor)
      )
      assert.deepInclude(grown, { _tag: "Refused", code: "budget_exhausted" })
      // What is there goes on, and may be changed otherwise.
      const evicting = cacheChange(place, "c", { evictionPolicy: "allkeys-lru" }).spec
      yield* resources.write(orgId, [{ action: "update", uid, spec: evicting }], actor)
      const other = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
      yield* resources.write(orgId, [cacheChange(other, "e")], actor)
    })
  )
})
