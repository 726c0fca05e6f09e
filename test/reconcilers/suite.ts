/**
 * What every reconciler must keep true, whatever its kind, proved on the real thing:
 *
 * - a step taken twice leaves what one leaves;
 * - a control plane that dies after any outside write is followed by one that ends in the same state;
 * - looking writes nothing, and a ready resource is left alone;
 * - removal takes everything away, from every half-made state and when it is interrupted itself;
 * - a departure in each field is seen and repaired;
 * - a run with a lower fence than one before it changes nothing.
 *
 * The suite drives the registered reconciler as the engine does: look, take one step, look again. Every run
 * has a control plane of its own over one outside, so each of them is a restart as well.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { ExternalCallHook, type ExternalEffect } from "#src/engine/external-call.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import type { Round } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { look, reachGoal, type Target } from "./settle.ts"

export interface Subject<World, Spec, E> {
  readonly name: string
  readonly kind: string
  /** The outside: folders, sealed secrets. It outlives control planes; closing its scope ends what runs in it. */
  readonly world: Effect.Effect<World, E, Scope.Scope>
  /** A control plane over that outside with the kind registered. Built anew for every run. */
  readonly layer: (world: World) => Layer.Layer<Registry, E>
  /** A new resource with a `uid` of its own, its secrets stored. The suite sets `fence` and `deleting`. */
  readonly makeResource: (world: World) => Effect.Effect<Resource<Spec>, E>
  /** What is there, in words that two equal resources share: without identifiers, ports, process ids, times. */
  readonly snapshot: (world: World, resource: Resource<Spec>) => Effect.Effect<unknown, E>
  /** What is left of the resource outside: files, processes, reservations. Empty once it is removed. */
  readonly remains: (world: World, resource: Resource<Spec>) => Effect.Effect<ReadonlyArray<string>, E>
  /** Changes that a user may ask for; each gets a world of its own. */
  readonly changes: ReadonlyArray<{
    readonly name: string
    readonly apply: (world: World, resource: Resource<Spec>) => Effect.Effect<Resource<Spec>, E>
  }>
  /** Ways in which what is there can depart from a ready resource by itself. */
  readonly drifts: ReadonlyArray<{
    readonly name: string
    /** Field of the difference that must be reported; `absent` when nothing is left to be seen. */
    readonly field: string
    readonly disturb: (world: World, resource: Resource<Spec>) => Effect.Effect<void, E>
  }>
  /** Nothing outside is made or changed for it: it is looked at, and what was kept of it is taken away. */
  readonly makesNothing?: boolean
  /** Milliseconds until a resource must have settled. */
  readonly settleMs?: number
  /** Milliseconds that one test may take. */
  readonly timeoutMs?: number
  /**
   * Whether a step is seen in between, such as that something runs, depends on how quick the outside is: one resource
   * may take fewer writes than another. Where a write did not come, others are made until it does.
   */
  readonly varies?: boolean
  /** How many resources may be made beside each other, where one of them mostly waits for others. */
  readonly atOnce?: number
  /**
   * Making one takes seconds of processor time. Control planes die then after every third outside write, and after others
   * where its repair is tested than where its removal is. A campaign with {@link crashes} takes all.
   */
  readonly costly?: boolean
  /** It is made and removed as another subject of the file: its changes and drifts alone are tested. */
  readonly changesAlone?: boolean
}

/** Control planes over one outside, one after another, each with the next fence. */
export const controlPlanes = <World, Spec, E>(subject: Subject<World, Spec, E>) => {
  const settleMs = subject.settleMs ?? 30_000
  let fence = 0n

  const run = <A, E2, R>(
    world: World,
    resource: Resource<Spec>,
    body: (target: Target, resource: Resource<Spec>) => Effect.Effect<A, E2, R>
  ) =>
    Effect.gen(function* () {
      const registration = (yield* Registry).registrations.get(subject.kind)
      if (registration === undefined) return yield* Effect.die(`${subject.kind} is not registered`)
      return yield* body(registration.reconciler, { ...resource, fence: ++fence })
    }).pipe(Effect.provide(subject.layer(world), { local: true }))

  const settle = (world: World, resource: Resource<Spec>, repeat = 1) =>
    run(world, resource, (target, current) => reachGoal(target, current, settleMs, repeat))

  /** Settles unless the control plane dies before, after its n-th outside write; answers the name of that write. */
  const settleOrCrash = (world: World, resource: Resource<Spec>, n: number) =>
    Effect.gen(function* () {
      const crash = crashAfter(n)
      const exit = yield* Effect.exit(
        settle(world, resource).pipe(Effect.provideService(ExternalCallHook, crash.hook))
      )
      if (crash.hit() !== undefined) {
        assert.isTrue(Exit.isFailure(exit))
        return `a crash after outside write ${n}, ${crash.hit()}`
      }
      return Exit.isSuccess(exit) ? undefined : yield* exit
    })

  const gone = Effect.fnUntraced(function* (world: World, resource: Resource<Spec>, after: string) {
    yield* settle(world, { ...resource, deleting: true })
    assert.deepStrictEqual(yield* subject.remains(world, resource), [], `left behind after ${after}`)
  })
  /** Names of the outside writes that settling takes. */
  const writesOf = (world: World, resource: Resource<Spec>) =>
    Effect.gen(function* () {
      const writes: Array<string> = []
      yield* settle(world, resource).pipe(Effect.provideService(ExternalCallHook, recordWrites(writes)))
      return writes
    })

  /** `changed` is still to be made true, and was worked on with a higher fence than `stale`. */
  const lateRunIsRefused = Effect.fnUntraced(function* (
    world: World,
    changed: Resource<Spec>,
    stale: bigint
  ) {
    const before = yield* subject.snapshot(world, changed)
    yield* run(world, changed, (target, current) =>
      Effect.gen(function* () {
        const observation = yield* look(target, current)
        const late = { ...current, fence: stale }
        const converged = yield* Effect.exit(target.converge(late, observation))
        assert.isTrue(Exit.isFailure(converged), "a late step is refused")
        const removed = yield* Effect.exit(target.remove({ ...late, deleting: true }, observation))
        assert.isTrue(Exit.isFailure(removed), "a late removal is refused")
      })
    )
    assert.deepStrictEqual(yield* subject.snapshot(world, changed), before)
  })

  const driftIsRepaired = Effect.fnUntraced(function* (world: World, resource: Resource<Spec>) {
    const before = yield* subject.snapshot(world, resource)
    for (const drift of subject.drifts) {
      yield* drift.disturb(world, resource)
      const seen = yield* run(world, resource, look)
      const fields =
        seen._tag === "Absent"
          ? ["absent"]
          : [...seen.differences, ...(seen.maintenance ?? [])].map((difference) => difference.field)
      assert.include(fields, drift.field, drift.name)
      assert.isNotEmpty(yield* writesOf(world, resource), `${drift.name}: repairing it takes a write`)
      assert.deepStrictEqual(yield* subject.snapshot(world, resource), before, drift.name)
    }
  })

  return {
    run,
    settle,
    settleOrCrash,
    writesOf,
    gone,
    lateRunIsRefused,
    driftIsRepaired,
    lastFence: () => fence
  }
}

/**
 * A round of a campaign: control planes die after outside writes of a creation, of a change and of a removal, several
 * times in a row, and the state at the end is that of a resource which nothing happened to.
 */
export const crashes =
  <World, Spec, E>(subject: Subject<World, Spec, E>) =>
  ({ seed }: Round) =>
    Effect.gen(function* () {
      const random = new Seeded(seed)
      const { settle, settleOrCrash, gone } = controlPlanes(subject)
      const world = yield* subject.world
      const some = Effect.fnUntraced(function* (resource: Resource<Spec>) {
        const told: Array<string> = []
        for (let left = random.int(1, 3); left > 0; left--)
          told.push((yield* settleOrCrash(world, resource, random.int(1, 16))) ?? "no crash")
        return told.join(", then ")
      })
      const undisturbed = yield* subject.makeResource(world)
      let disturbed = yield* subject.makeResource(world)
      yield* settle(world, undisturbed)
      let told = `creation: ${yield* some(disturbed)}`
      if (random.chance(0.7)) {
        const same = Effect.fnUntraced(function* (first: Resource<Spec>, second: Resource<Spec>) {
          yield* settle(world, first)
          yield* settle(world, second)
          const [left, right] = [
            yield* subject.snapshot(world, second),
            yield* subject.snapshot(world, first)
          ]
          assert.deepStrictEqual(left, right, told)
        })
        yield* same(undisturbed, disturbed)
        const change = random.pick(subject.changes)
        if (change !== undefined) {
          const changed = yield* change.apply(world, undisturbed)
          disturbed = yield* change.apply(world, disturbed)
          told += `; ${change.name}: ${yield* some(disturbed)}`
          yield* same(changed, disturbed)
        }
      }
      told += `; removal: ${yield* some({ ...disturbed, deleting: true })}`
      yield* gone(world, disturbed, told)
    })

export const reconcilerSuite = <World, Spec, E>(subject: Subject<World, Spec, E>): void => {
  const timeout = subject.timeoutMs ?? 240_000
  const atOnce = subject.atOnce ?? 1
  const { settle, settleOrCrash, writesOf, gone, lastFence, lateRunIsRefused, driftIsRepaired } =
    controlPlanes(subject)

  const settleUntilCrash = (world: World, resource: Resource<Spec>, n: number) =>
    Effect.map(
      settleOrCrash(world, resource, n),
      (crash) => crash ?? assert.fail(`there is no outside write ${n}`)
    )

  /** A new resource whose creation was broken off after its n-th outside write, and the name of that write. */
  const broken = Effect.fnUntraced(function* (world: World, n: number) {
    for (let tries = subject.varies === true ? 5 : 1; ; tries--) {
      const resource = yield* subject.makeResource(world)
      const crash = yield* settleOrCrash(world, resource, n)
      if (crash !== undefined) return { resource, crash }
      if (tries === 1) return assert.fail(`there is no outside write ${n}`)
      yield* gone(world, resource, "an undisturbed creation")
    }
  })

  /** For each write its number, from 1; where resources are costly every third one, beginning with `first`. */
  const eachOf = <E2, R>(
    writes: ReadonlyArray<string>,
    first: 1 | 2,
    body: (n: number) => Effect.Effect<void, E2, R>
  ) => {
    const all = writes.map((_, index) => index + 1)
    const numbers = subject.costly === true && all.length > 2 ? all.filter((n) => n % 3 === first % 3) : all
    return Effect.forEach(numbers, body, { concurrency: atOnce, discard: true })
  }

  const testChange = <E2>(
    name: string,
    body: (world: World) => Effect.Effect<void, E | E2, Scope.Scope>
  ): void => it.live(name, () => Effect.flatMap(subject.world, body), timeout)
  const test: typeof testChange = subject.changesAlone === true ? () => {} : testChange

  describe(subject.name, () => {
    test("a step taken twice leaves what one leaves", (world) =>
      Effect.gen(function* () {
        const once = yield* subject.makeResource(world)
        const twice = yield* subject.makeResource(world)
        yield* settle(world, once)
        yield* settle(world, twice, 2)
        assert.deepStrictEqual(yield* subject.snapshot(world, twice), yield* subject.snapshot(world, once))
        yield* settle(world, { ...twice, deleting: true }, 2)
        assert.deepStrictEqual(yield* subject.remains(world, twice), [])
      }))

    test("looking writes nothing, and a ready resource is left alone", (world) =>
      Effect.gen(function* () {
        const resource = yield* subject.makeResource(world)
        const first = yield* writesOf(world, resource)
        if (subject.makesNothing === true) assert.isEmpty(first)
        else assert.isNotEmpty(first)
        const before = yield* subject.snapshot(world, resource)
        assert.deepStrictEqual(yield* writesOf(world, resource), [])
        assert.deepStrictEqual(yield* subject.snapshot(world, resource), before)
      }))

    test("a crash after any outside write of its creation is made good by the next run", (world) =>
      Effect.gen(function* () {
        const undisturbed = yield* subject.makeResource(world)
        const writes = yield* writesOf(world, undisturbed)
        const expected = yield* subject.snapshot(world, undisturbed)
        yield* eachOf(writes, 1, (n) =>
          Effect.gen(function* () {
            const { resource, crash } = yield* broken(world, n)
            yield* settle(world, resource)
            assert.deepStrictEqual(yield* subject.snapshot(world, resource), expected, `after ${crash}`)
            yield* gone(world, resource, crash)
          })
        )
      }))

    test("removal works from every half-made state", (world) =>
      Effect.gen(function* () {
        const never = yield* subject.makeResource(world)
        yield* gone(world, never, "nothing was made")
        const undisturbed = yield* subject.makeResource(world)
        const writes = yield* writesOf(world, undisturbed)
        assert.isNotEmpty(yield* subject.remains(world, undisturbed), "a ready resource has remains")
        yield* eachOf(writes, 2, (n) =>
          Effect.gen(function* () {
            const { resource, crash } = yield* broken(world, n)
            yield* gone(world, resource, crash)
          })
        )
        yield* gone(world, undisturbed, "an undisturbed creation")
      }))

    test("a crash after any outside write of its removal is made good by the next run", (world) =>
      Effect.gen(function* () {
        const undisturbed = yield* subject.makeResource(world)
        yield* settle(world, undisturbed)
        const writes = yield* writesOf(world, { ...undisturbed, deleting: true })
        yield* eachOf(writes, 1, (n) =>
          Effect.gen(function* () {
            const resource = yield* subject.makeResource(world)
            yield* settle(world, resource)
            const crash = yield* settleUntilCrash(world, { ...resource, deleting: true }, n)
            yield* gone(world, resource, crash)
          })
        )
      }))

    for (const [index, change] of subject.changes.entries()) {
      testChange(`${change.name}: arrives, twice as once, and after a crash at any outside write`, (world) =>
        Effect.gen(function* () {
          const prepared = Effect.gen(function* () {
            const resource = yield* subject.makeResource(world)
            yield* settle(world, resource)
            return yield* change.apply(world, resource)
          })
          const undisturbed = yield* prepared
          const before = yield* subject.snapshot(world, undisturbed)
          const writes = yield* writesOf(world, undisturbed)
          const expected = yield* subject.snapshot(world, undisturbed)
          assert.notDeepEqual(expected, before, "the change can be seen")
          const twice = yield* prepared
          yield* settle(world, twice, 2)
          assert.deepStrictEqual(yield* subject.snapshot(world, twice), expected)
          yield* eachOf(writes, index % 2 === 0 ? 1 : 2, (n) =>
            Effect.gen(function* () {
              const resource = yield* prepared
              const crash = yield* settleUntilCrash(world, resource, n)
              yield* settle(world, resource)
              assert.deepStrictEqual(yield* subject.snapshot(world, resource), expected, `after ${crash}`)
              yield* gone(world, resource, crash)
            })
          )
        })
      )
    }

    if (subject.drifts.length > 0)
      // One after another in one resource: once it is repaired it is as it was, and that is compared.
      testChange("drift in each field is seen and repaired", (world) =>
        Effect.gen(function* () {
          const resource = yield* subject.makeResource(world)
          yield* settle(world, resource)
          yield* driftIsRepaired(world, resource)
        })
      )

    // A step that does nothing has nothing to be refused, and the wish to delete is never taken back.
    if (subject.makesNothing === true) return

    test("a run with a lower fence changes and removes nothing", (world) =>
      Effect.gen(function* () {
        const resource = yield* subject.makeResource(world)
        // Runs beside this one take numbers as well: the next is higher than this.
        const stale = lastFence()
        yield* settle(world, resource)
        const [change] = subject.changes
        const changed = change === undefined ? resource : yield* change.apply(world, resource)
        yield* lateRunIsRefused(world, changed, stale)
        yield* settle(world, changed)
      }))
  })
}

/**
 * Dies right after the n-th outside write, as a control plane that is killed before it records anything; of writes of one
 * name alone, where one is given.
 */
export const crashAfter = (n: number, of?: string) => {
  let count = 0
  let hit: string | undefined
  const hook: ExternalCallHook = {
    before: () => Effect.void,
    after: (name, effect) =>
      Effect.suspend(() => {
        if (effect !== "write" || (of !== undefined && name !== of) || ++count !== n) return Effect.void
        hit = name
        return Effect.die(new Error(`crash after outside write ${n} (${name})`))
      })
  }
  return { hook, hit: () => hit }
}

export const recordWrites = (writes: Array<string>): ExternalCallHook => ({
  before: () => Effect.void,
  after: (name: string, effect: ExternalEffect) =>
    Effect.sync(() => {
      if (effect === "write") writes.push(name)
    })
})
