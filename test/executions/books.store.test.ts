/** What the store knows of executions: room on the host, who is waited for, and who is still followed. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Logs } from "#src/executions/Logs.ts"
import { Runs } from "#src/executions/Runs.ts"
import { Db } from "#src/store/Db.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

const stack = Layer.mergeAll(Runs.layer, Logs.layer).pipe(Layer.provideMerge(testDb()))

const begin = Effect.fnUntraced(function* () {
  const ref = { orgId: uuid(), uid: uuid(), fence: 1n }
  yield* (yield* Runs).begin({ ...ref, projectId: uuid() })
  return ref
})

layer(stack, { excludeTestServices: true, timeout: "3 minutes" })("runs of executions", (it) => {
  it.effect(
    "never hold more memory of the host than there is, however many ask at once, and let go of it",
    () =>
      Effect.gen(function* () {
        const runs = yield* Runs
        const { engine: sql } = yield* Db
        const refs = yield* Effect.all(Array.from({ length: 24 }, begin))
        const ask = (ref: (typeof refs)[number]) =>
          Effect.map(runs.room(ref, 300, 1_000), (got) => ({ ref, got }))
        const answers = yield* Effect.forEach(refs, ask, { concurrency: "unbounded" })
        const inside = answers.filter(({ got }) => got).map(({ ref }) => ref)
        const outside = answers.filter(({ got }) => !got).map(({ ref }) => ref)
        assert.lengthOf(inside, 3)
        const [held] = yield* sql`select sum(room_mb)::int as sum from execution`
        assert.deepStrictEqual(held, { sum: 900 })
        // Asking again takes nothing more.
        for (const ref of inside) assert.isTrue(yield* runs.room(ref, 300, 1_000))
        const [next, large] = outside
        const [first, second, third] = inside
        if (!first || !second || !third || !next || !large) return assert.fail("too few")
        // Its container could not be removed yet, then it is gone.
        yield* runs.cleanup(first, "pending", 1)
        assert.isFalse(yield* runs.room(next, 300, 1_000))
        yield* runs.cleanup(first, "confirmed", 1)
        assert.isTrue(yield* runs.room(next, 300, 1_000))
        // What needs more than all of it waits until it is alone.
        for (const ref of [second, third]) yield* runs.forget(ref)
        assert.isFalse(yield* runs.room(large, 5_000, 1_000))
        yield* runs.forget(next)
        assert.isTrue(yield* runs.room(large, 5_000, 1_000))
        yield* runs.forget(large)
      })
  )

  it.effect("end whatever a registry or a container engine said about them", () =>
    Effect.gen(function* () {
      const runs = yield* Runs
      const ref = yield* begin()
      const finishedAt = new Date(0)
      const error = "the registry said \0 and \ud800"
      const ending = {
        status: "failed",
        errorCode: "image_pull_failed",
        exitCode: null,
        startedAt: null
      } as const
      assert.isTrue(yield* runs.end(ref, { ...ending, error, finishedAt }))
      const run = Option.getOrThrow(yield* runs.find(ref))
      assert.strictEqual(run.error, "the registry said  and \ufffd")
    })
  )

  it.effect("tell how long nobody followed by the store's clock, whatever that of the process says", () =>
    Effect.gen(function* () {
      const runs = yield* Runs
      const logs = yield* Logs
      const { engine: sql } = yield* Db
      const ref = yield* begin()
      const age = Effect.map(runs.find(ref), (run) => Option.getOrThrow(run).logOwnerAgeMs)
      assert.isNull(yield* age)
      yield* logs.follow(ref, "me", 15_000)
      const now = (yield* age) ?? -1
      assert.isTrue(now >= 0 && now < 50_000, `${now}`)
      yield* sql`update execution set log_owner_at = log_owner_at - interval '1 minute' where uid = ${ref.uid}`
      assert.isAtLeast((yield* age) ?? 0, 60_000)
    })
  )

  it.effect("are found by organization and id together, and tell which of them still wait for an image", () =>
    Effect.gen(function* () {
      const runs = yield* Runs
      const [waiting, pulled, over] = [yield* begin(), yield* begin(), yield* begin()]
      const at = new Date()
      yield* runs.pulled(pulled, { id: "i", digest: null }, at)
      yield* runs.end(over, {
        status: "cancelled",
        errorCode: null,
        error: null,
        exitCode: null,
        startedAt: null,
        finishedAt: at
      })
      const refs = [waiting, pulled, over, { orgId: waiting.orgId, uid: uuid() }]
      assert.deepStrictEqual([...(yield* runs.wantingImage(refs))], [waiting.uid])
      assert.sameMembers([...(yield* runs.known(refs))], [waiting.uid, pulled.uid, over.uid])
      assert.strictEqual((yield* runs.known([{ orgId: uuid(), uid: waiting.uid }])).size, 0)
    })
  )
})
