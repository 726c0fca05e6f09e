/** The intake while the store is away. */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { IntakeBusy, mostWaiting, SpeedBatches } from "#src/speed-insights/SpeedBatches.ts"
import { Db } from "#src/store/Db.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { postgresProxy } from "#test/setup/postgres-proxy.ts"

class Store extends Context.Service<Store, Redacted.Redacted>()("test/StoreUrl") {}
const world = Layer.unwrap(
  Effect.map(migratedDatabase, (url) => Layer.merge(Db.layer({ url }), Layer.succeed(Store, url)))
)

const batchOf = (projectId: string, more: { readonly route?: string } = {}) => ({
  orgId: uuid(),
  projectId,
  environmentUid: uuid(),
  batchId: uuid(),
  bytes: 250,
  events: [
    {
      eventId: "e",
      metric: "LCP" as const,
      value: 1_000,
      timestamp: DateTime.makeUnsafe(Date.now()),
      route: "/",
      device: "desktop" as const,
      navigationType: "navigate" as const,
      ...more
    }
  ]
})

/** An intake with connections of its own. */
const onWay = Effect.gen(function* () {
  const proxy = yield* postgresProxy(yield* Store)
  const layers = Layer.fresh(SpeedBatches.layer).pipe(
    Layer.provide(Layer.fresh(Db.layer({ url: proxy.url })))
  )
  const intake = Context.get(yield* Layer.build(layers), SpeedBatches)
  return { proxy, intake }
})

layer(world, { excludeTestServices: true })("while the store is away", (it) => {
  it.effect("batches are refused, those that were accepted are there, and later ones are taken again", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { proxy, intake } = yield* onWay
      const projectId = uuid()
      const accepted: Array<string> = []
      let refused = 0
      const send = Effect.suspend(() => {
        const batch = batchOf(projectId)
        return Effect.match(intake.add(batch), {
          onSuccess: (added) => {
            assert.isTrue(added)
            accepted.push(batch.batchId)
          },
          onFailure: (error) => {
            assert.instanceOf(error, StoreUnavailable)
            refused++
          }
        })
      })
      const many = (times: number) =>
        Effect.forEach(Array.from({ length: times }), () => send, { concurrency: 50, discard: true })
      yield* many(200)
      assert.strictEqual(accepted.length, 200)
      yield* Effect.all([many(400), Effect.andThen(Effect.sleep("5 millis"), proxy.goAway), many(100)], {
        concurrency: 3
      })
      yield* many(20)
      assert.isAtLeast(refused, 20)
      yield* proxy.comeBack
      const before = accepted.length
      yield* many(50)
      assert.strictEqual(accepted.length, before + 50)
      const stored = yield* sql<{ readonly id: string }>`
        select batch_id as id from speed_batch where project_uid = ${projectId}::uuid`
      const ids = new Set(stored.map(({ id }) => id))
      assert.deepStrictEqual(
        accepted.filter((id) => !ids.has(id)),
        []
      )
    })
  )

  it.effect("one that the store does not take keeps out none that wait with it", () =>
    Effect.gen(function* () {
      const { intake } = yield* onWay
      const projectId = uuid()
      // Text in Postgres has no U+0000; no batch of the API has one.
      const bad = batchOf(projectId, { route: "/\u0000" })
      const many = () => Array.from({ length: 20 }, () => batchOf(projectId))
      const [good, others] = [many(), many()]
      // The first is stored at once; the bad one waits meanwhile, with those that come after it.
      const [added, refused, rest] = yield* Effect.all(
        [
          Effect.forEach(good, intake.add, { concurrency: 20 }),
          Effect.flip(intake.add(bad)),
          Effect.forEach(others, intake.add, { concurrency: 20 })
        ],
        { concurrency: 3 }
      )
      assert.instanceOf(refused, StoreUnavailable)
      assert.isTrue([...added, ...rest].every((one) => one))
    })
  )

  it.effect("so many wait and no more", () =>
    Effect.gen(function* () {
      const { proxy, intake } = yield* onWay
      // Nothing comes back, so everybody waits.
      proxy.state.losing = { statement: "speed_batch", lose: "quietly", times: 1_000 }
      for (let i = 0; i < mostWaiting; i++)
        yield* Effect.forkScoped(Effect.ignore(intake.add(batchOf(uuid()))), { startImmediately: true })
      assert.instanceOf(yield* Effect.flip(intake.add(batchOf(uuid()))), IntakeBusy)
    })
  )
})
