import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import { Ledger } from "#src/ai-gateways/Ledger.ts"
import { sweep } from "#src/ai-gateways/sweep.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { withinOneMonth } from "#test/budgets/periods.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { booksOf, callOf, type Gateway, listening, newGateway, outcomeOf, usd } from "./world.ts"

const stack = Layer.mergeAll(Ledger.layer, Budgets.layer, Resources.layer).pipe(
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb()),
  Layer.provide(withinOneMonth)
)

/** Makes a call as a whole. */
const calls = Effect.fnUntraced(function* (gateway: Gateway, most: number, cost: number) {
  const { reserve } = yield* Ledger
  return yield* Effect.scoped(
    Effect.flatMap(reserve(callOf(gateway, most)), ({ settle }) => settle(outcomeOf(cost)))
  )
})

const nothing = { spent: 0, reserved: 0, requests: 0, inputTokens: 0, outputTokens: 0 }

layer(stack, { excludeTestServices: true, timeout: "3 minutes" })("the ledger", (it) => {
  it.effect("holds the most that a call can cost, and then charges what it did", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { settle } = yield* reserve(callOf(gateway, 700_000_001))
          assert.deepStrictEqual(yield* booksOf(gateway), { ...nothing, reserved: 700_000_001 })
          yield* settle(outcomeOf(123))
          const books = { spent: 123, reserved: 0, requests: 1, inputTokens: 10, outputTokens: 5 }
          assert.deepStrictEqual(yield* booksOf(gateway), books)
          // The first one counts.
          yield* settle(outcomeOf(9_999))
          assert.deepStrictEqual(yield* booksOf(gateway), books)
        })
      )
      assert.strictEqual((yield* booksOf(gateway)).spent, 123)
    })
  )

  it.effect("charges no more than was reserved, whatever an upstream says", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway(1)
      yield* calls(gateway, 100, 5_000)
      yield* calls(gateway, 100, Number.NaN)
      yield* calls(gateway, 100, -7)
      yield* calls(gateway, 100, 1e300)
      assert.deepInclude(yield* booksOf(gateway), { spent: 200, reserved: 0, requests: 4 })
    })
  )

  it.effect("gives back what was reserved for a call that was not sent, and charges one that was cut", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(reserve(callOf(gateway, 500)))
      assert.deepStrictEqual(yield* booksOf(gateway), nothing)
      let soFar = 0
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { sent } = yield* reserve(callOf(gateway, 500))
          yield* sent(() => outcomeOf(soFar, { estimated: true, status: 499 }))
          soFar = 70
        })
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: 70, reserved: 0, requests: 1 })
    })
  )

  it.effect("refuses what does not fit, and says what is spent, held and asked", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const gateway = yield* newGateway(1)
      yield* calls(gateway, 0.5 * usd, 0.25 * usd)
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* reserve(callOf(gateway, 0.7 * usd))
          const refused = yield* Effect.flip(reserve(callOf(gateway, 50_000_001)))
          assert.strictEqual(refused._tag, "BudgetUsedUp")
          assert.match(
            refused.message,
            /\$1\.00 for \d{4}-\d\d .* \$0\.25 are spent, \$0\.70 are held .* may cost \$0\.050000001$/
          )
          yield* reserve(callOf(gateway, 50_000_000))
        })
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: 0.25 * usd, reserved: 0 })
    })
  )

  it.effect("is stopped by the project's hard stop, whatever is left of the gateway's own budget", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const { engine: sql } = yield* Db
      const budgets = yield* Budgets
      const gateway = yield* newGateway(10)
      const { orgId, projectId } = gateway
      const spend = (microUsd: number) =>
        Effect.gen(function* () {
          const charge = { orgId, projectId, uid: uuid(), microUsd }
          yield* budgets.reserve(charge)
          yield* budgets.settle(charge)
        })
      const uid = uuid()
      const set = (hardStop: boolean) =>
        budgets.enforce({
          uid,
          orgId,
          projectId,
          monthlyCap: 1_000_000,
          alertPercent: null,
          hardStop,
          generation: 1
        })
      yield* set(true)
      yield* spend(900_000)
      yield* calls(gateway, 5_000, 5_000)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { settle } = yield* reserve(callOf(gateway, 700))
          yield* spend(100_000)
          const refused = yield* Effect.flip(reserve(callOf(gateway, 1)))
          assert.strictEqual(refused._tag, "BudgetUsedUp")
          assert.match(refused.message, /^The project's budget/)
          // What is under way is settled.
          yield* settle(outcomeOf(600))
        })
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: 5_600, reserved: 0, requests: 2 })
      // What only counts stops nothing, and neither does another month's money.
      yield* set(false)
      yield* calls(gateway, 10, 10)
      yield* set(true)
      yield* sql`update budget_month set month = month - interval '1 month' where org_id = ${orgId}::uuid`
      yield* calls(gateway, 10, 10)
      assert.deepInclude(yield* booksOf(gateway), { spent: 5_620, reserved: 0, requests: 4 })
    })
  )

  it.effect("a call that is too large keeps no smaller one out that came with it", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const gateway = yield* newGateway(1)
      const amounts = [0.4, 0.9, 0.3, 0.5, 0.2, 0.1, 0.05].map((amount) => amount * usd)
      const granted = yield* Effect.scoped(
        Effect.forEach(amounts, (amount) => Effect.result(reserve(callOf(gateway, amount))), {
          concurrency: "unbounded"
        })
      )
      const fitting = amounts.filter((_, index) => granted[index]?._tag === "Success")
      assert.isAtLeast(
        fitting.reduce((a, b) => a + b, 0),
        0.9 * usd
      )
      assert.strictEqual((yield* booksOf(gateway)).reserved, 0)
    })
  )

  it.effect("another try of a call holds more if that fits, and the call may then cost the sum", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const resources = yield* Resources
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { extend, settle } = yield* reserve(callOf(gateway, 0.4 * usd))
          yield* extend(0.1 * usd)
          yield* extend(0.3 * usd)
          assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 0.8 * usd })
          const refused = yield* Effect.flip(extend(0.25 * usd))
          assert.strictEqual(refused._tag, "BudgetUsedUp")
          assert.match(refused.message, /\$0\.80 are held .* may cost \$0\.25$/)
          assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 0.8 * usd })
          yield* extend(0.2 * usd)
          yield* settle(outcomeOf(0.9 * usd))
          // It holds nothing any more.
          assert.strictEqual((yield* Effect.flip(extend(1)))._tag, "StoreUnavailable")
        })
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: 0.9 * usd, reserved: 0, requests: 1 })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { extend } = yield* reserve(callOf(gateway, 5))
          yield* extend(5)
          yield* resources.write(gateway.orgId, [{ action: "delete", uid: gateway.gateway }], actor)
          assert.strictEqual((yield* Effect.flip(extend(5)))._tag, "GatewayGone")
        })
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: 0.9 * usd, reserved: 0 })
    })
  )

  it.effect("tries of many calls at once never hold more than the budget", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const results = yield* Effect.forEach(
            Array.from({ length: 20 }, () => 0.02 * usd),
            (amount) =>
              Effect.flatMap(reserve(callOf(gateway, amount)), ({ extend }) =>
                Effect.result(extend(2 * amount))
              ),
            { concurrency: "unbounded" }
          )
          assert.lengthOf(
            results.filter(({ _tag }) => _tag === "Success"),
            15
          )
          assert.strictEqual((yield* booksOf(gateway)).reserved, usd)
        })
      )
      assert.strictEqual((yield* booksOf(gateway)).reserved, 0)
    })
  )

  it.effect("a changed budget holds from the next call on; one of nothing refuses what costs something", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const resources = yield* Resources
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(0)
      assert.strictEqual(
        (yield* Effect.flip(Effect.scoped(reserve(callOf(gateway, 1)))))._tag,
        "BudgetUsedUp"
      )
      yield* calls(gateway, 0, 0)
      yield* sql`update resource set spec = spec || '{"monthlyBudgetUsd": 2.5}' where uid = ${gateway.gateway}`
      yield* calls(gateway, 2.5 * usd, 2 * usd)
      yield* sql`update resource set spec = spec || '{"monthlyBudgetUsd": 1}' where uid = ${gateway.gateway}`
      assert.strictEqual(
        (yield* Effect.flip(Effect.scoped(reserve(callOf(gateway, 1)))))._tag,
        "BudgetUsedUp"
      )
      yield* resources.write(gateway.orgId, [{ action: "delete", uid: gateway.gateway }], actor)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(reserve(callOf(gateway, 1)))))._tag, "GatewayGone")
    })
  )

  it.effect("another organization's gateway is none of a call's business", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const [one, other] = [yield* newGateway(1), yield* newGateway(1)]
      const foreign = callOf({ ...other, orgId: one.orgId }, 5)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(reserve(foreign))))._tag, "GatewayGone")
      assert.deepStrictEqual(yield* booksOf(other), nothing)
    })
  )

  it.effect("what is reserved in one month and ends in the next is counted once, in the first", () =>
    Effect.gen(function* () {
      const { reserve } = yield* Ledger
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { extend, settle } = yield* reserve(callOf(gateway, 0.9 * usd))
          yield* sql`update ai_gateway_month set month = month - interval '1 month' where org_id = ${gateway.orgId}`
          yield* sql`update ai_gateway_reservation set day = day - interval '1 month' where org_id = ${gateway.orgId}`
          // A new month, with all of its money.
          yield* calls(gateway, usd, 0.5 * usd)
          yield* extend(0.1 * usd)
          assert.strictEqual((yield* Effect.flip(extend(1)))._tag, "BudgetUsedUp")
          yield* settle(outcomeOf(0.95 * usd))
        })
      )
      const months = yield* sql`select spent::float8, reserved::int from ai_gateway_month
        where org_id = ${gateway.orgId} order by month`
      assert.deepStrictEqual(
        [...months],
        [
          { spent: 0.95 * usd, reserved: 0 },
          { spent: 0.5 * usd, reserved: 0 }
        ]
      )
      yield* booksOf(gateway)
    })
  )

  it.effect("passing four fifths is told of once a month, and so is the end of the budget", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(1)
      const told = yield* listening(gateway)
      // One that could never fit is no sign that the budget is used up.
      yield* Effect.flip(calls(gateway, 2 * usd, 0))
      yield* calls(gateway, 0.79 * usd, 0.79 * usd)
      assert.lengthOf(yield* told, 0)
      yield* Effect.forEach(
        Array.from({ length: 5 }, () => 0.01 * usd),
        (cost) => calls(gateway, cost, cost),
        { concurrency: "unbounded" }
      )
      const [alert, ...more] = yield* told
      assert.lengthOf(more, 0)
      assert.deepInclude(alert, { type: "budget.alert", projectId: gateway.projectId })
      assert.deepInclude(alert?.data, {
        aiGateway: { id: gateway.gateway, name: "ai", environment: "production" },
        monthlyBudgetUsd: 1,
        alertThresholdPercent: 80
      })
      assert.match(String(alert?.data["month"]), /^\d{4}-\d\d$/)
      assert.isAtLeast(Number(alert?.data["spentUsd"]), 0.8)
      // It never reaches the budget to the last cent: what is refused says that it is used up.
      yield* Effect.forEach([1, 2, 3], () => Effect.flip(calls(gateway, 0.5 * usd, 0)))
      assert.deepStrictEqual(
        (yield* told).map(({ type }) => type),
        ["budget.alert", "budget.exceeded"]
      )
      yield* calls(gateway, 0.16 * usd, 0.16 * usd)
      assert.lengthOf(yield* told, 2)
      for (const table of ["ai_gateway_month", "ai_gateway_usage"]) {
        const column = sql(table === "ai_gateway_month" ? "month" : "day")
        yield* sql`update ${sql(table)} set ${column} = ${column} - interval '1 month' where org_id = ${gateway.orgId}`
      }
      yield* calls(gateway, usd, usd)
      assert.lengthOf(yield* told, 4)
    })
  )

  it.effect(
    "what a process left that died is settled at what was reserved, and what goes on is left alone",
    () =>
      Effect.gen(function* () {
        const { reserve } = yield* Ledger
        const { engine: sql } = yield* Db
        const gateway = yield* newGateway(1)
        const scope = yield* Scope.make()
        const { id, settle } = yield* Scope.provide(reserve(callOf(gateway, 300)), scope)
        const dead = "00000000-0000-7000-8000-000000000001"
        const age = (seconds: number) => sql`update ai_gateway_reservation
        set reserved_at = reserved_at - make_interval(secs => ${seconds}::int) where org_id = ${gateway.orgId}`
        yield* age(120)
        yield* sql`insert into ai_gateway_holder select holder, now() + interval '1 minute'
        from ai_gateway_reservation where id = ${id} on conflict (id) do update set alive_until = excluded.alive_until`
        yield* sweep
        assert.deepInclude(yield* booksOf(gateway), { spent: 0, reserved: 300 })
        yield* sql`update ai_gateway_reservation set holder = ${dead} where id = ${id}`
        yield* sql`insert into ai_gateway_holder values (${dead}, now() - interval '1 second')
        on conflict (id) do update set alive_until = excluded.alive_until`
        yield* Effect.all([sweep, sweep, sweep], { concurrency: "unbounded" })
        assert.deepInclude(yield* booksOf(gateway), { spent: 300, reserved: 0, requests: 1 })
        // It was only asleep: it is settled already.
        yield* settle(outcomeOf(10))
        yield* Scope.close(scope, Exit.void)
        assert.deepInclude(yield* booksOf(gateway), { spent: 300, reserved: 0, requests: 1 })
      })
  )

  it.effect("a settlement that the store does not take is tried again until it does", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(1)
      const told: Array<string> = []
      const logger = Logger.layer([Logger.make(({ message }) => void told.push(String(message)))])
      const { reserve } = Context.get(
        yield* Layer.build(Layer.fresh(Ledger.layer).pipe(Layer.provide(logger))),
        Ledger
      )
      const hold = (reserved: number) =>
        sql`update ai_gateway_month set reserved = ${reserved}::bigint where gateway_uid = ${gateway.gateway}`
      // Less than nothing cannot be held: the settlement is refused as long as this stands.
      const call = Effect.flatMap(reserve(callOf(gateway, 300)), ({ sent }) =>
        Effect.andThen(
          sent(() => outcomeOf(44)),
          hold(0)
        )
      )
      const ending = yield* Effect.forkChild(Effect.scoped(call))
      yield* eventually(
        "it was refused",
        Effect.sync(() => told),
        (lines) => lines.some((line) => line.includes("could not settle"))
      )
      // It holds up nobody else.
      yield* Effect.scoped(reserve(callOf(gateway, 100)))
      yield* hold(300)
      yield* Fiber.join(ending)
      const books = yield* eventually("it is written", booksOf(gateway), ({ spent }) => spent > 0)
      assert.deepInclude(books, { spent: 44, reserved: 0, requests: 1 })
    })
  )

  it.effect("a process that stops settles what it holds first", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway(1)
      const scope = yield* Scope.make()
      const { reserve } = yield* Effect.map(
        Layer.buildWithScope(Layer.fresh(Ledger.layer), scope),
        (context) => Context.get(context, Ledger)
      )
      const inner = yield* Scope.fork(scope)
      const { sent } = yield* Scope.provide(reserve(callOf(gateway, 300)), inner)
      yield* sent(() => outcomeOf(44))
      yield* Scope.close(scope, Exit.void)
      assert.deepInclude(yield* booksOf(gateway), { spent: 44, reserved: 0, requests: 1 })
    })
  )

  it.effect("200 callers against a budget for 50 calls: 50 are made, and the budget is used to the end", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway(1)
      const made = yield* Effect.forEach(
        Array.from({ length: 200 }, (_, i) => i),
        () => Effect.result(calls(gateway, 0.02 * usd, 0.02 * usd)),
        { concurrency: "unbounded" }
      )
      assert.lengthOf(
        made.filter(({ _tag }) => _tag === "Success"),
        50
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: usd, reserved: 0, requests: 50 })
    })
  )

  campaign(
    it.effect,
    "ai-ledger-interruptions",
    "calls that are interrupted at any moment leave nothing reserved, and what was used is charged",
    { rounds: 1 },
    Effect.fnUntraced(function* ({ seed, full }) {
      const { reserve } = yield* Ledger
      const random = new Seeded(seed)
      const gateway = yield* newGateway(1_000)
      let charged = 0
      const one = Effect.fnUntraced(function* (steps: ReadonlyArray<number>) {
        const { sent, settle } = yield* reserve(callOf(gateway, 1_000))
        yield* Effect.sleep(steps[0] ?? 0)
        yield* sent(() => {
          charged += 7
          return outcomeOf(7)
        })
        yield* Effect.sleep(steps[1] ?? 0)
        yield* Effect.uninterruptible(
          Effect.andThen(
            Effect.sync(() => {
              charged += 11
            }),
            settle(outcomeOf(11))
          )
        )
      }, Effect.scoped)
      yield* Effect.forEach(
        Array.from({ length: full ? 4_000 : 400 }, () => ({
          steps: [random.int(0, 8), random.int(0, 8)],
          after: random.int(0, 40)
        })),
        ({ steps, after }) =>
          Effect.gen(function* () {
            const call = yield* Effect.forkChild(one(steps))
            yield* Effect.sleep(after)
            yield* Fiber.interrupt(call)
          }),
        { concurrency: 40 }
      )
      assert.deepInclude(yield* booksOf(gateway), { spent: charged, reserved: 0 })
    })
  )

  campaign(
    it.effect,
    "ai-ledger-sums",
    "whatever is reserved, settled, cut and swept in whatever order, the month's sums are right",
    { rounds: 3 },
    Effect.fnUntraced(function* ({ seed }) {
      const { reserve } = yield* Ledger
      const { engine: sql } = yield* Db
      const random = new Seeded(seed)
      const cap = random.int(0, 200)
      const gateway = yield* newGateway(0)
      yield* sql`update resource set spec = spec || jsonb_build_object('monthlyBudgetUsd', ${cap}::numeric / 1000000000)
        where uid = ${gateway.gateway}`
      const held: Array<{
        readonly amount: number
        readonly settle: (cost: number) => Effect.Effect<void>
        readonly close: Effect.Effect<void>
      }> = []
      let spent = 0
      const heldSum = () => held.reduce((sum, { amount }) => sum + amount, 0)
      for (let step = 0; step < 30; step++) {
        const amount = random.int(0, 50)
        const index = held.length === 0 ? -1 : random.int(0, held.length - 1)
        if (random.chance(0.5) || index === -1) {
          const scope = yield* Scope.make()
          const result = yield* Effect.result(Scope.provide(reserve(callOf(gateway, amount)), scope))
          assert.strictEqual(result._tag === "Success", spent + heldSum() + amount <= cap)
          if (result._tag === "Success") {
            held.push({
              amount,
              settle: (cost) => result.success.settle(outcomeOf(cost)),
              close: Scope.close(scope, Exit.void)
            })
          }
        } else {
          const [one] = held.splice(index, 1)
          if (one === undefined) continue
          if (random.chance(0.7)) {
            const cost = random.int(0, 60)
            yield* one.settle(cost)
            spent += Math.min(cost, one.amount)
          }
          yield* one.close
        }
        assert.deepInclude(yield* booksOf(gateway), { spent, reserved: heldSum() })
      }
      yield* Effect.forEach(held, ({ close }) => close, { discard: true })
      assert.deepInclude(yield* booksOf(gateway), { spent, reserved: 0 })
    })
  )
})
