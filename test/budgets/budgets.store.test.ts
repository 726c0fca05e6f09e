import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Budgets } from "#src/budgets/Budgets.ts"
import { tidy } from "#src/budgets/tidy.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { withinOneMonth } from "./periods.ts"

const stack = Layer.mergeAll(Budgets.layer, Resources.layer).pipe(
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb()),
  Layer.provide(withinOneMonth)
)

const open = { monthlyCap: null, alertPercent: 80, hardStop: false } as const
const capped = (monthlyCap: number) => ({ monthlyCap, alertPercent: 80, hardStop: true })

/** The resource that is in force. */
const resource = uuid()

const newProject = Effect.fnUntraced(function* () {
  const { id: orgId } = yield* makeOrganization()
  const place = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
  return { orgId, projectId: place.projectId, place }
})

/** The events of a project that some endpoint wants to hear of, in order. */
const listening = Effect.fnUntraced(function* (orgId: string) {
  const { engine: sql } = yield* Db
  yield* sql`insert into webhook (org_id, id, url, events, key_id, sealed)
    values (${orgId}, ${uuid()}, 'https://hooks.example.test/', '{budget.alert,budget.exceeded}', 'k', '\\x00')`
  return sql<{ readonly type: string; readonly projectId: string; readonly data: Record<string, unknown> }>`
    select e.type, e.project_id as "projectId", e.data from webhook_event e
    join webhook_delivery d on d.org_id = e.org_id and d.event_id = e.id
    where e.org_id = ${orgId} order by e.created_at, e.type`
})

const agesOf = Effect.fnUntraced(function* (orgId: string, minutes: number) {
  const { engine: sql } = yield* Db
  yield* sql`update budget_entry set reserved_at = reserved_at - make_interval(mins => ${minutes}::int)
    where org_id = ${orgId}`
})

layer(stack, { excludeTestServices: true, timeout: "3 minutes" })("budgets", (it) => {
  it.effect("without a cap everything is granted and counted", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { orgId, projectId } = yield* newProject()
      const before = yield* budgets.get(orgId, projectId)
      assert.deepInclude(before, { ...open, spent: 0, reserved: 0, revision: "0" })
      const uid = uuid()
      yield* budgets.reserve({ orgId, projectId, uid, microUsd: 9_000_000_000_000 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 0, reserved: 9_000_000_000_000 })
      yield* budgets.settle({ orgId, projectId, uid, microUsd: 7 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 7, reserved: 0 })
    })
  )

  it.effect("a hard stop refuses what could cost more than is left, and says what is left of what", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(1_000_000), generation: 1 })
      const charge = (microUsd: number) => ({ orgId, projectId, uid: uuid(), microUsd })
      const tooMuch = yield* Effect.flip(budgets.reserve(charge(1_000_001)))
      assert.strictEqual(tooMuch._tag, "BudgetExhausted")
      const first = charge(600_000)
      yield* budgets.reserve(first)
      const refused = yield* Effect.flip(budgets.reserve(charge(400_001)))
      assert.match(refused.message, /\$1\.00 .* \$0\.00 are spent and \$0\.60 reserved, .* \$0\.400001/)
      yield* budgets.reserve(charge(400_000))
      yield* budgets.settle({ ...first, microUsd: 1 })
      // What was reserved and not spent is free again.
      yield* budgets.reserve(charge(599_999))
      assert.strictEqual((yield* Effect.flip(budgets.reserve(charge(1))))._tag, "BudgetExhausted")
      yield* budgets.enforce({
        uid: resource,
        orgId,
        projectId,
        ...capped(1_000_000),
        hardStop: false,
        generation: 1
      })
      yield* budgets.reserve(charge(5_000_000))
    })
  )

  it.effect("another project's and another organization's money is their own", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const [one, other] = [yield* newProject(), yield* newProject()]
      yield* budgets.enforce({
        uid: resource,
        orgId: one.orgId,
        projectId: one.projectId,
        ...capped(10),
        generation: 1
      })
      const uid = uuid()
      yield* budgets.reserve({ ...other, uid, microUsd: 100 })
      yield* budgets.reserve({ ...one, uid, microUsd: 10 })
      assert.deepInclude(yield* budgets.get(other.orgId, other.projectId), {
        monthlyCap: null,
        reserved: 100
      })
      assert.deepInclude(yield* budgets.get(one.orgId, other.projectId), { monthlyCap: null, reserved: 0 })
    })
  )

  it.effect("repeating a reservation or a settlement changes nothing, also at the same moment", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(100), generation: 1 })
      const charge = { orgId, projectId, uid: uuid(), microUsd: 60 }
      const eight = Array.from({ length: 8 }, (_, i) => i)
      yield* Effect.forEach(eight, () => budgets.reserve(charge), { concurrency: "unbounded" })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 0, reserved: 60 })
      yield* Effect.forEach(eight, (i) => budgets.settle({ ...charge, microUsd: 40 + i }), {
        concurrency: "unbounded"
      })
      const { spent, reserved } = yield* budgets.get(orgId, projectId)
      assert.isTrue(spent >= 40 && spent < 48, `${spent}`)
      assert.strictEqual(reserved, 0)
      yield* budgets.reserve(charge)
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent, reserved: 0 })
    })
  )

  it.effect("any number of reservations at once never exceed the cap, and use all of it", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { engine: sql } = yield* Db
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(1_000), generation: 1 })
      const granted = yield* Effect.forEach(
        Array.from({ length: 120 }, () => ({ orgId, projectId, uid: uuid(), microUsd: 25 })),
        (charge) => Effect.map(Effect.result(budgets.reserve(charge)), (one) => one._tag === "Success"),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(granted.filter(Boolean).length, 40)
      const [row] = yield* sql`select sum(reserved)::int as sum, count(*)::int as count from budget_entry
        where org_id = ${orgId}`
      assert.deepStrictEqual(row, { sum: 1_000, count: 40 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 0, reserved: 1_000 })
    })
  )

  campaign(
    it.effect,
    "budgets",
    "whatever is reserved, settled and repeated in whatever order, the books are right",
    { rounds: 6 },
    Effect.fnUntraced(function* ({ seed }) {
      const budgets = yield* Budgets
      const random = new Seeded(seed)
      const cap = random.int(0, 100)
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(cap), generation: 1 })
      const uids = Array.from({ length: 6 }, uuid)
      const held = new Map<number, number>()
      const spent = new Map<number, number>()
      const sum = (amounts: Map<number, number>) => [...amounts.values()].reduce((a, b) => a + b, 0)
      for (let step = 0; step < 25; step++) {
        const [uid, microUsd] = [random.int(0, 5), random.int(0, 40)]
        const settle = random.chance(0.4)
        const charge = { orgId, projectId, uid: uids[uid] ?? "", microUsd }
        if (settle) {
          yield* budgets.settle(charge)
          if (!spent.has(uid)) spent.set(uid, Math.min(microUsd, held.get(uid) ?? microUsd))
          held.delete(uid)
        } else {
          const result = yield* Effect.result(budgets.reserve(charge))
          const known = held.has(uid) || spent.has(uid)
          const fits = sum(held) + sum(spent) + microUsd <= cap
          assert.strictEqual(result._tag, known || fits ? "Success" : "Failure")
          if (!known && fits) held.set(uid, microUsd)
        }
        const { spent: s, reserved } = yield* budgets.get(orgId, projectId)
        assert.deepStrictEqual([s, reserved], [sum(spent), sum(held)])
      }
    })
  )

  it.effect("what takes longer than was agreed costs what was reserved, so that a hard stop holds", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { engine: sql } = yield* Db
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(100), generation: 1 })
      const charge = { orgId, projectId, uid: uuid(), microUsd: 100 }
      yield* budgets.reserve(charge)
      yield* budgets.settle({ ...charge, microUsd: 170 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 100, reserved: 0 })
      const [entry] = yield* sql`select spent::int, reserved::int from budget_entry where org_id = ${orgId}`
      assert.deepStrictEqual(entry, { spent: 100, reserved: 100 })
    })
  )

  it.effect("what is reserved in one month and ends in the next is counted once, in the first", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { engine: sql } = yield* Db
      const { orgId, projectId } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(100), generation: 1 })
      const charge = { orgId, projectId, uid: uuid(), microUsd: 90 }
      yield* budgets.reserve(charge)
      for (const table of ["budget_entry", "budget_month"]) {
        yield* sql`update ${sql(table)} set month = month - interval '1 month' where org_id = ${orgId}`
      }
      // A new month, with all of its money.
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 0, reserved: 0 })
      yield* budgets.reserve({ ...charge, uid: uuid(), microUsd: 100 })
      yield* budgets.settle({ ...charge, microUsd: 80 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 0, reserved: 100 })
      const months = yield* sql`select spent::int, reserved::int from budget_month
        where org_id = ${orgId} order by month`
      assert.deepStrictEqual(
        [...months],
        [
          { spent: 80, reserved: 0 },
          { spent: 0, reserved: 100 }
        ]
      )
    })
  )

  it.effect("what never came into being gives its money back; what is there keeps it", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const resources = yield* Resources
      const { orgId, projectId, place } = yield* newProject()
      yield* budgets.enforce({ uid: resource, orgId, projectId, ...capped(100), generation: 1 })
      const there = cacheChange(place, "one")
      yield* resources.write(orgId, [there], actor)
      const lost = { orgId, projectId, uid: uuid(), microUsd: 30 }
      yield* budgets.reserve({ orgId, projectId, uid: there.uid, microUsd: 50 })
      yield* budgets.reserve(lost)
      yield* budgets.reserve({ orgId, projectId, uid: uuid(), microUsd: 20 })
      yield* agesOf(orgId, 9)
      yield* tidy
      assert.strictEqual((yield* budgets.get(orgId, projectId)).reserved, 100)
      yield* agesOf(orgId, 2)
      yield* Effect.all([tidy, tidy, tidy], { concurrency: "unbounded" })
      assert.strictEqual((yield* budgets.get(orgId, projectId)).reserved, 50)
      // It did run after all: what it cost is counted.
      yield* budgets.settle({ ...lost, microUsd: 5 })
      assert.deepInclude(yield* budgets.get(orgId, projectId), { spent: 5, reserved: 50 })
    })
  )

  it.effect("passing the threshold and reaching the cap are told of once a month each", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { engine: sql } = yield* Db
      const { orgId, projectId } = yield* newProject()
      const told = yield* listening(orgId)
      yield* budgets.enforce({
        uid: resource,
        orgId,
        projectId,
        monthlyCap: 1_000_000,
        alertPercent: 50,
        hardStop: false,
        generation: 1
      })
      const spend = (microUsd: number) => budgets.settle({ orgId, projectId, uid: uuid(), microUsd })
      yield* spend(499_999)
      assert.lengthOf(yield* told, 0)
      yield* Effect.forEach(
        Array.from({ length: 10 }, () => 10_000),
        spend,
        { concurrency: "unbounded" }
      )
      const [alert, ...more] = yield* told
      assert.lengthOf(more, 0)
      assert.deepStrictEqual(alert, {
        type: "budget.alert",
        projectId,
        data: {
          month: (yield* budgets.get(orgId, projectId)).month,
          monthlyCapUsd: 1,
          alertThresholdPercent: 50,
          hardStop: false,
          spentUsd: 0.509999
        }
      })
      yield* Effect.forEach(
        Array.from({ length: 10 }, () => 100_000),
        spend,
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        (yield* told).map(({ type }) => type),
        ["budget.alert", "budget.exceeded"]
      )
      // Another month, another time.
      yield* sql`update budget_month set month = month - interval '1 month' where org_id = ${orgId}`
      yield* spend(2_000_000)
      assert.deepStrictEqual((yield* told).map(({ type }) => type).sort(), [
        "budget.alert",
        "budget.alert",
        "budget.exceeded",
        "budget.exceeded"
      ])
    })
  )

  it.effect("a cap below what is spent is one that was reached", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { orgId, projectId } = yield* newProject()
      const told = yield* listening(orgId)
      yield* budgets.settle({ orgId, projectId, uid: uuid(), microUsd: 70 })
      assert.lengthOf(yield* told, 0)
      yield* budgets.enforce({
        uid: resource,
        orgId,
        projectId,
        monthlyCap: 50,
        alertPercent: null,
        hardStop: true,
        generation: 1
      })
      assert.deepStrictEqual(
        (yield* told).map(({ type }) => type),
        ["budget.exceeded"]
      )
    })
  )

  it.effect("what a later generation says is not taken back, nor is what a later reconcile did", () =>
    Effect.gen(function* () {
      const budgets = yield* Budgets
      const { orgId, projectId } = yield* newProject()
      const enforce = (cap: number, generation: number, fence?: bigint, uid = resource) =>
        budgets.enforce({
          ...{ orgId, projectId, uid, ...capped(cap), generation },
          ...(fence === undefined ? {} : { fence })
        })
      const forget = (fence: bigint, uid = resource) => budgets.forget({ orgId, projectId, uid, fence })
      assert.isTrue(yield* enforce(1, 1))
      assert.isTrue(yield* enforce(3, 3))
      assert.isFalse(yield* enforce(2, 2))
      assert.isFalse(yield* enforce(2, 2, 9n))
      assert.isTrue(yield* enforce(3, 3, 5n))
      assert.isFalse(yield* enforce(4, 4, 4n))
      assert.deepInclude(yield* budgets.get(orgId, projectId), { monthlyCap: 3, revision: "3" })
      assert.isFalse(yield* forget(4n))
      // Deleted, and made anew before that has ended: the new one begins with its first generation.
      const next = uuid()
      assert.isTrue(yield* enforce(7, 1, undefined, next))
      assert.isFalse(yield* enforce(3, 3, 4n))
      assert.isTrue(yield* forget(9n))
      assert.deepInclude(yield* budgets.get(orgId, projectId), { monthlyCap: 7, revision: "1", uid: next })
      assert.isTrue(yield* forget(10n, next))
      assert.deepInclude(yield* budgets.get(orgId, projectId), { monthlyCap: null, revision: "0", uid: null })
    })
  )

  it.effect("what a process of the former release sets, its resource says too", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const budgets = yield* Budgets
      const resources = yield* Resources
      const { orgId, projectId } = yield* newProject()
      const resource = Effect.map(resources.listKind(orgId, "Budget", projectId), (all) =>
        all.map(({ spec, generation }) => ({ spec, generation }))
      )
      const set = (cap: number) => sql`
        insert into project_budget as b (org_id, project_uid, monthly_cap, alert_percent, hard_stop)
        values (${orgId}::uuid, ${projectId}::uuid, ${cap}::bigint, 80, true)
        on conflict (org_id, project_uid) do update set monthly_cap = excluded.monthly_cap, revision = b.revision + 1`
      const spec = (monthlyCapUsd: number) => ({ monthlyCapUsd, alertThresholdPercent: 80, hardStop: true })
      yield* set(12_500_000)
      assert.deepStrictEqual(yield* resource, [{ spec: spec(12.5), generation: 1 }])
      // Once it was looked at, the engine looks again at what is set next.
      yield* sql`update work set due_at = 'infinity', again = false where org_id = ${orgId}::uuid`
      yield* set(7)
      assert.deepStrictEqual(yield* resource, [{ spec: spec(0.000007), generation: 2 }])
      assert.deepInclude(yield* budgets.get(orgId, projectId), { monthlyCap: 7, revision: "2" })
      const [queued] =
        yield* sql`select count(*)::int as count from work where org_id = ${orgId}::uuid and kind = 'Budget'
          and due_at <= now() and again`
      assert.deepStrictEqual(queued, { count: 1 })
    })
  )
})
