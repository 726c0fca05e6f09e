import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { receiver } from "#test/outbound/receiver.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { deliverer, fixture, subscribe, until, verified } from "#test/webhooks/setting.ts"
import { withinOneMonth } from "./periods.ts"

const stack = Layer.mergeAll(Budgets.layer, Resources.layer).pipe(
  Layer.provideMerge(fixture),
  Layer.provide(withinOneMonth)
)

layer(stack, { excludeTestServices: true, timeout: "3 minutes" })("budgets and webhooks", (it) => {
  it.effect("each event reaches an HTTPS receiver once, signed, however many settle at that moment", () =>
    Effect.gen(function* () {
      yield* deliverer
      const budgets = yield* Budgets
      const { engine: sql } = yield* Db
      const { id: orgId } = yield* makeOrganization()
      const { projectId } = yield* makeProject(orgId, "shop")
      const there = yield* receiver()
      const { secret } = yield* subscribe(orgId, there.url(), ["budget.alert", "budget.exceeded"])
      yield* budgets.enforce({
        uid: uuid(),
        orgId,
        projectId,
        monthlyCap: 10_000_000,
        alertPercent: 50,
        hardStop: true,
        generation: 1
      })
      const charges = Array.from({ length: 40 }, () => ({ orgId, projectId, uid: uuid(), microUsd: 250_000 }))
      yield* Effect.forEach(charges, budgets.reserve, { concurrency: "unbounded" })
      yield* Effect.forEach(charges, budgets.settle, { concurrency: "unbounded" })
      // Nothing of it counts twice.
      yield* Effect.forEach(charges, budgets.settle, { concurrency: "unbounded" })
      yield* until(
        sql<{ readonly open: number }>`
          select count(*)::int as open from webhook_delivery where org_id = ${orgId}::uuid and state = 'waiting'`,
        ([row]) => row?.open === 0
      )
      const events = there.received.map((got) => verified(secret, got))
      const of = (type: string) => events.filter((event) => event.type === type)
      assert.lengthOf(events, 2)
      assert.lengthOf(of("budget.alert"), 1)
      assert.deepInclude(of("budget.alert")[0], { organizationId: orgId, projectId })
      assert.deepInclude(of("budget.alert")[0].data, { spentUsd: 5, monthlyCapUsd: 10, hardStop: true })
      assert.lengthOf(of("budget.exceeded"), 1)
      assert.deepInclude(of("budget.exceeded")[0].data, { spentUsd: 10, alertThresholdPercent: 50 })
    })
  )
})
