import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { batched } from "#src/access/batching.ts"
import { eventually } from "#test/setup/wait.ts"

/** Looks that end when the test says so, with what each was asked. */
const controlled = Effect.gen(function* () {
  const looks: Array<{
    readonly asked: ReadonlyArray<string>
    readonly end: Deferred.Deferred<void, string>
  }> = []
  const ask = yield* batched(
    (question: string) => question,
    Effect.fnUntraced(function* (questions: ReadonlyArray<string>) {
      const end = yield* Deferred.make<void, string>()
      const number = looks.push({ asked: questions, end })
      yield* Deferred.await(end)
      return questions.map((question) => `${question} by look ${number}`)
    })
  )
  const until = (holds: () => boolean) => eventually("the looks have come so far", Effect.sync(holds))
  /** Asks, and goes on once the question is taken down. */
  const asking = (question: string) => Effect.forkChild(ask(question), { startImmediately: true })
  return { looks, ask, asking, until }
})

layer(Layer.empty, { excludeTestServices: true })("questions that share a look", (it) => {
  it.effect("are answered by one that began after them, never by the one under way", () =>
    Effect.gen(function* () {
      const { looks, asking, until } = yield* controlled
      const first = yield* asking("a")
      yield* until(() => looks.length === 1)
      // The same question, later: what the look under way saw may have changed since.
      const later = yield* Effect.forEach(["a", "a", "b"], asking)
      yield* Deferred.succeed(looks[0]!.end, undefined)
      assert.strictEqual(yield* Fiber.join(first), "a by look 1")
      yield* until(() => looks.length === 2)
      assert.deepStrictEqual(looks[1]?.asked, ["a", "b"])
      yield* Deferred.succeed(looks[1]!.end, undefined)
      assert.deepStrictEqual(yield* Fiber.joinAll(later), ["a by look 2", "a by look 2", "b by look 2"])
      assert.strictEqual(looks.length, 2)
    })
  )

  it.effect("wait for looks of their own lane only", () =>
    Effect.gen(function* () {
      const looks: Array<string> = []
      const slow = yield* Deferred.make<void>()
      const ask = yield* batched(
        (question: string) => question,
        Effect.fnUntraced(function* (questions: ReadonlyArray<string>) {
          looks.push(questions.join(" "))
          if (questions.includes("a1")) yield* Deferred.await(slow)
          return questions
        }),
        (question) => question.slice(0, 1)
      )
      const first = yield* Effect.forkChild(ask("a1"), { startImmediately: true })
      const second = yield* Effect.forkChild(ask("a2"), { startImmediately: true })
      assert.strictEqual(yield* ask("b1"), "b1")
      assert.strictEqual(yield* ask("b2"), "b2")
      assert.deepStrictEqual(looks, ["a1", "b1", "b2"])
      yield* Deferred.succeed(slow, undefined)
      assert.deepStrictEqual(yield* Fiber.joinAll([first, second]), ["a1", "a2"])
      assert.deepStrictEqual(looks, ["a1", "b1", "b2", "a2"])
    })
  )

  it.effect("fail together, and the next ones are not touched by that", () =>
    Effect.gen(function* () {
      const { looks, asking, until } = yield* controlled
      const first = yield* asking("a")
      yield* until(() => looks.length === 1)
      const second = yield* asking("b")
      yield* Deferred.fail(looks[0]!.end, "lost")
      assert.strictEqual(yield* Effect.flip(Fiber.join(first)), "lost")
      yield* until(() => looks.length === 2)
      yield* Deferred.succeed(looks[1]!.end, undefined)
      assert.strictEqual(yield* Fiber.join(second), "b by look 2")
    })
  )

  it.effect("lose nothing when one of those who ask goes away, and come in bounded numbers", () =>
    Effect.gen(function* () {
      const { looks, asking, until } = yield* controlled
      const first = yield* asking("first")
      yield* until(() => looks.length === 1)
      const many = yield* Effect.forEach(
        Array.from({ length: 250 }, (_, i) => `q${i}`),
        asking
      )
      yield* Fiber.interrupt(many[0]!)
      yield* Fiber.interrupt(first)
      yield* Deferred.succeed(looks[0]!.end, undefined)
      yield* until(() => looks.length === 2)
      yield* Deferred.succeed(looks[1]!.end, undefined)
      yield* until(() => looks.length === 3)
      yield* Deferred.succeed(looks[2]!.end, undefined)
      assert.deepStrictEqual(
        looks.map(({ asked }) => asked.length),
        [1, 200, 50]
      )
      assert.strictEqual(yield* Fiber.join(many[249]!), "q249 by look 3")
      assert.strictEqual(yield* Fiber.join(many[1]!), "q1 by look 2")
    })
  )
})
