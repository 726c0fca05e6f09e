/**
 * What `suite.ts` proves of a kind, for kinds whose resources are servers and cost seconds of processor time to make:
 * three resources live one life beside each other. The first takes every step once, the second takes every step twice,
 * and the control planes of the third die one after another, each one act further, until one of them comes to the end.
 * After the creation and after each change all three are alike.
 *
 * Here a control plane dies once after each act, and the next one may die as well. That one control plane alone makes
 * good what any of them left is for the campaign with `crashes`.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import type { Resource } from "#src/engine/Reconciler.ts"
import { controlPlanes, crashAfter, type Subject } from "./suite.ts"

/** Dies right after the first outside write whose name is not among these, and adds that name. */
const crashAfterNew = (died: Array<string>): ExternalCallHook => ({
  before: () => Effect.void,
  after: (name, effect) =>
    Effect.suspend(() => {
      if (effect !== "write" || died.includes(name)) return Effect.void
      died.push(name)
      return Effect.die(new Error(`crash after ${name}`))
    })
})

/** After the last one nothing is left to be done, so that a control plane which follows a death may do without it. */
const allButLast = (writes: ReadonlyArray<string>): Array<string> => [...new Set(writes)].slice(0, -1)

export const lifeSuite = <World, Spec, E>(subject: Subject<World, Spec, E>): void => {
  const { settle, settleOrCrash, writesOf, gone, lastFence, lateRunIsRefused, driftIsRepaired } =
    controlPlanes(subject)

  /** Settles by control planes that die, one after each act; answers the acts. */
  const settleByDying = Effect.fnUntraced(function* (world: World, resource: Resource<Spec>) {
    const died: Array<string> = []
    for (let before = -1; before < died.length; ) {
      before = died.length
      const exit = yield* Effect.exit(
        settle(world, resource).pipe(Effect.provideService(ExternalCallHook, crashAfterNew(died)))
      )
      if (died.length > before) assert.isTrue(Exit.isFailure(exit))
      else yield* exit
    }
    return died
  })

  const alike = Effect.fnUntraced(function* (
    world: World,
    [once, ...others]: readonly [Resource<Spec>, ...ReadonlyArray<Resource<Spec>>],
    after: string
  ) {
    const expected = yield* subject.snapshot(world, once)
    for (const other of others) assert.deepStrictEqual(yield* subject.snapshot(world, other), expected, after)
    assert.deepStrictEqual(yield* writesOf(world, once), [], "what is ready is left alone")
    assert.deepStrictEqual(yield* subject.snapshot(world, once), expected, "and looking changes nothing")
    return expected
  })

  describe(subject.name, () => {
    it.live(
      "steps taken twice, control planes that die after each act, drift and late runs leave what an undisturbed life leaves",
      () =>
        Effect.gen(function* () {
          const world = yield* subject.world
          let once = yield* subject.makeResource(world)
          let twice = yield* subject.makeResource(world)
          let dying = yield* subject.makeResource(world)

          yield* gone(world, once, "nothing was made")
          const stale = lastFence()
          const made = yield* writesOf(world, once)
          assert.isNotEmpty(made)
          assert.isNotEmpty(yield* subject.remains(world, once), "a ready resource has remains")
          yield* settle(world, twice, 2)
          const died = yield* settleByDying(world, dying)
          yield* alike(world, [once, twice, dying], "creation")
          // What a death makes needless is not done again: one dies after that alone.
          for (const act of new Set(made.filter((name) => !died.includes(name)))) {
            const other = yield* subject.makeResource(world)
            const { hook, hit } = crashAfter(1, act)
            yield* Effect.exit(settle(world, other).pipe(Effect.provideService(ExternalCallHook, hook)))
            assert.strictEqual(hit(), act)
            yield* settle(world, other)
            yield* alike(world, [once, other], `creation, and a crash after ${act}`)
            yield* gone(world, other, act)
          }

          for (const change of subject.changes) {
            once = yield* change.apply(world, once)
            yield* lateRunIsRefused(world, once, stale)
            const before = yield* subject.snapshot(world, once)
            const writes = yield* writesOf(world, once)
            twice = yield* change.apply(world, twice)
            yield* settle(world, twice, 2)
            dying = yield* change.apply(world, dying)
            assert.includeMembers(yield* settleByDying(world, dying), allButLast(writes))
            const after = yield* alike(world, [once, twice, dying], change.name)
            assert.notDeepEqual(after, before, `${change.name} can be seen`)
          }

          yield* driftIsRepaired(world, once)

          const removing = yield* writesOf(world, { ...once, deleting: true })
          assert.deepStrictEqual(yield* subject.remains(world, once), [])
          yield* settle(world, { ...twice, deleting: true }, 2)
          assert.deepStrictEqual(yield* subject.remains(world, twice), [])
          const ends = yield* settleByDying(world, { ...dying, deleting: true })
          assert.includeMembers(ends, allButLast(removing))
          assert.deepStrictEqual(yield* subject.remains(world, dying), [])

          // Half-made, after every second write of a creation, which leaves less behind than a whole one.
          for (let n = 2; n <= made.length; n += 2) {
            const half = yield* subject.makeResource(world)
            const crash = yield* settleOrCrash(world, half, n)
            yield* gone(world, half, crash ?? assert.fail(`there is no outside write ${n}`))
          }
        }).pipe(Effect.scoped),
      subject.timeoutMs ?? 240_000
    )
  })
}
