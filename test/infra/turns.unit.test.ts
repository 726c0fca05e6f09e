import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { makeTurns } from "#src/infra/host/turns.ts"

/** Whoever asks is told apart by owner and number; each holds its turn until it is let go. */
const makeWorld = (atOnce: number, mostOfOne?: number) => {
  const { take } = makeTurns(atOnce, mostOfOne)
  const begun: Array<string> = []
  const gates = new Map<string, Deferred.Deferred<void>>()
  return {
    begun,
    ask: Effect.fnUntraced(function* (name: string, first = false) {
      const gate = yield* Deferred.make<void>()
      gates.set(name, gate)
      const fiber = yield* Effect.sync(() => begun.push(name)).pipe(
        Effect.andThen(Deferred.await(gate)),
        take({ owner: name.slice(0, 1), first }),
        Effect.forkChild
      )
      yield* Effect.yieldNow
      return fiber
    }),
    end: Effect.fnUntraced(function* (name: string) {
      yield* Deferred.succeed(gates.get(name)!, undefined)
      yield* Effect.yieldNow
      yield* Effect.yieldNow
    })
  }
}
type World = ReturnType<typeof makeWorld>
/** Ends each as soon as it has begun. */
const drain = Effect.fnUntraced(function* ({ begun, end }: World) {
  for (let at = 0; at < begun.length; at++) yield* end(begun[at]!)
})

it.effect("owners take turns: one with many waits for no more than one of each other", () =>
  Effect.gen(function* () {
    const world = makeWorld(1)
    for (const name of ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]) yield* world.ask(name)
    yield* drain(world)
    assert.deepStrictEqual(world.begun, ["a1", "a2", "b1", "c1", "a3", "b2", "a4"])
  })
)

it.effect("who has the fewest under way goes first", () =>
  Effect.gen(function* () {
    const world = makeWorld(2)
    for (const name of ["a1", "a2", "a3"]) yield* world.ask(name)
    assert.deepStrictEqual(world.begun, ["a1", "a2"])
    yield* world.ask("b1")
    yield* world.end("a1")
    assert.deepStrictEqual(world.begun, ["a1", "a2", "b1"])
  })
)

it.effect("no owner has more than its share, however many turns are free", () =>
  Effect.gen(function* () {
    const world = makeWorld(3, 2)
    for (const name of ["a1", "a2", "a3"]) yield* world.ask(name)
    assert.deepStrictEqual(world.begun, ["a1", "a2"])
    for (const name of ["b1", "b2", "c1"]) yield* world.ask(name)
    assert.deepStrictEqual(world.begun, ["a1", "a2", "b1"])
    yield* world.end("a1")
    yield* world.end("b1")
    assert.deepStrictEqual(world.begun.slice(3), ["c1", "b2"])
    yield* world.end("a2")
    assert.deepStrictEqual(world.begun.slice(5), ["a3"])
  })
)

it.effect("what is needed first goes first, and still keeps nobody waiting for ever", () =>
  Effect.gen(function* () {
    const world = makeWorld(1)
    yield* world.ask("a0")
    yield* world.ask("z1")
    for (let n = 1; n <= 9; n++) yield* world.ask(`${n % 2 === 0 ? "a" : "b"}${n}`, true)
    yield* drain(world)
    const [own, ...rest] = world.begun
    assert.strictEqual(own, "a0")
    assert.deepStrictEqual(rest.slice(0, 2), ["b1", "a2"])
    assert.strictEqual(world.begun.indexOf("z1"), 3)
    assert.lengthOf(world.begun, 11)
  })
)

it.effect("whoever goes away while it waits, or in its turn, leaves the turn to others", () =>
  Effect.gen(function* () {
    const world = makeWorld(1)
    const first = yield* world.ask("a1")
    const second = yield* world.ask("a2")
    yield* world.ask("b1")
    yield* Fiber.interrupt(second)
    yield* Fiber.interrupt(first)
    yield* Effect.yieldNow
    assert.deepStrictEqual(world.begun, ["a1", "b1"])
    yield* world.end("b1")
    yield* world.ask("c1")
    assert.deepStrictEqual(world.begun, ["a1", "b1", "c1"])
  })
)
