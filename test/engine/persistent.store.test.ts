import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { supervise } from "#src/engine/supervise.ts"
import * as deliver from "#src/webhooks/deliver.ts"
import { WebhookDeliveries } from "#src/webhooks/WebhookDeliveries.ts"
import { fixture, happens, listener, until } from "#test/webhooks/setting.ts"

/** What can happen to one round of a loop, in the order in which the rounds of a test meet it. */
const faults = [Effect.die(new Error("a bug")), Effect.interrupt] as const
const troubles = [Effect.fail("the store is away"), ...faults] as const

const collecting = () => {
  const logs: Array<string> = []
  const logger = Logger.make((entry) => void logs.push(`${entry.logLevel}: ${String(entry.message)}`))
  return { logs, layer: Logger.layer([logger]) }
}

it.live("failures, faults and foreign interruptions are told and end no loop; the loop's own end does", () =>
  Effect.gen(function* () {
    const { logs, layer } = collecting()
    let rounds = 0
    const loop = Effect.forever(
      supervise(
        "do its work",
        Effect.suspend((): Effect.Effect<void, string> => troubles[rounds++] ?? Effect.yieldNow)
      )
    )
    const fiber = yield* Effect.forkChild(Effect.provide(loop, layer))
    yield* until(
      Effect.sync(() => rounds),
      (count) => count > 6
    )
    yield* Fiber.interrupt(fiber)
    const before = rounds
    yield* Effect.repeat(Effect.yieldNow, { times: 100 })
    assert.strictEqual(rounds, before)
    assert.lengthOf(logs, 3)
    assert.match(logs[0] ?? "", /^Warn: could not do its work; trying again/)
    for (const fault of logs.slice(1)) assert.match(fault, /^Error: a fault of the program: could not do/)
  })
)

layer(fixture, { excludeTestServices: true })("the loop of webhooks", (it) => {
  it.effect("goes on after a fault in claiming and in a try, and then delivers", () =>
    Effect.gen(function* () {
      const real = yield* WebhookDeliveries
      const { logs, layer } = collecting()
      const [claims, records] = [[...faults], [Effect.die(new Error("a bug"))]]
      const faulty = Layer.succeed(WebhookDeliveries, {
        ...real,
        claim: (room) => claims.shift() ?? real.claim(room),
        delivered: (delivery, attempt) => records.shift() ?? real.delivered(delivery, attempt)
      })
      yield* Layer.build(Layer.fresh(deliver.layer).pipe(Layer.provide(faulty), Layer.provide(layer)))
      const one = yield* listener()
      yield* happens(one.orgId)
      yield* until(
        Effect.sync(() => one.received),
        (received) => received.length > 0
      )
      yield* happens(one.orgId)
      yield* until(
        Effect.sync(() => one.received),
        (received) => received.length > 1
      )
      // Nobody saw what became of the first: it stays leased, and is not tried at once again and again.
      const told = yield* until(
        Effect.sync(() => logs.filter((line) => line.includes("a fault of the program"))),
        (lines) => lines.length >= 3
      )
      assert.lengthOf(told, 3)
      assert.lengthOf(one.received, 2)
      assert.isTrue(told.some((line) => /what became of [0-9a-f-]{36} was not stored/.test(line)))
    })
  )
})
