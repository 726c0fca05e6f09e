/** What the shared suite proves of a kind, for the standbys of a database: they are made, mended and removed in steps. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  type DatabaseResource,
  type DatabaseWorld,
  databaseRemains,
  databaseWorld,
  disturb
} from "#test/setup/databases.ts"
import {
  asControlPlane,
  becomesTrue,
  changed,
  everywhere,
  fill,
  makeReplicated,
  rowsIn,
  seen,
  settle,
  standby,
  statusOf
} from "#test/setup/replicas.ts"
import { reachGoal } from "./settle.ts"
import { crashAfter, recordWrites } from "./suite.ts"

/** Each has a machine of its own, and mostly waits for it. */
const minutes = (count: number) => ({ timeout: count * 60_000, concurrent: true })

const whole = (world: DatabaseWorld, resource: DatabaseResource, after: string) =>
  Effect.gen(function* () {
    yield* becomesTrue(
      `both stream after ${after}`,
      Effect.map(
        seen(world, resource),
        (now) =>
          statusOf(now)
            .replicas?.map(({ state }) => state)
            .join() === "streaming,streaming"
      )
    )
    yield* everywhere(world, resource, 1000, `after ${after}`)
  })

const removed = (world: DatabaseWorld, resource: DatabaseResource, after: string) =>
  Effect.gen(function* () {
    for (const number of [1, 2])
      assert.deepStrictEqual(
        yield* databaseRemains(world, standby(world, resource, number)),
        [],
        `left behind after ${after}`
      )
    // Divides by zero while there is a slot.
    yield* disturb("select 1 / (count(*) = 0)::int from pg_replication_slots")(world, resource)
  })

/** What making and removing standbys does. */
const makingActs = [
  "postgres.claim",
  "postgres.reservePort",
  "postgres.writeCertificate",
  "postgres.writeFiles",
  "postgres.dropData",
  "postgres.makeSlot",
  "hydration.begin",
  "postgres.start"
]
const removingActs = ["hydration.cancel", "postgres.stop", "postgres.delete", "postgres.dropSlots"]

campaign(
  it.live,
  "standby-deaths",
  "a control plane that dies after any act of making or removing standbys is followed by one that ends it",
  { roundMs: 1_800_000 },
  Effect.fnUntraced(function* ({ full }) {
    if (!full) {
      // They die one after another, each one act further, in one making and in one removal.
      const world = yield* databaseWorld
      const without = makeReplicated(world, { replicas: 0 })
      const resource = changed(without, { replicas: 2 })
      yield* settle(world, without)
      yield* fill(world, without)
      const diesAfter = Effect.fnUntraced(function* (wanted: DatabaseResource, acts: ReadonlyArray<string>) {
        for (const act of acts) {
          const { hook, hit } = crashAfter(1, act)
          yield* Effect.exit(settle(world, wanted).pipe(Effect.provideService(ExternalCallHook, hook)))
          assert.strictEqual(hit(), act)
        }
        yield* settle(world, wanted)
      })
      yield* diesAfter(resource, makingActs)
      yield* whole(world, resource, "each act of making them")
      yield* diesAfter(without, removingActs)
      yield* removed(world, without, "each act of removing them")
      return assert.strictEqual(yield* rowsIn(world, without), 1000)
    }
    const hits = new Set<string>()
    // Beyond what there is to be done.
    let [lastMade, lastRemoved] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
    // In three worlds beside each other: after every act, each in a making or removal of its own.
    const from = Effect.fnUntraced(function* (first: number) {
      const world = yield* databaseWorld
      const without = makeReplicated(world, { replicas: 0 })
      const resource = changed(without, { replicas: 2 })
      yield* settle(world, without)
      yield* fill(world, without)
      for (let n = first; n <= Math.max(lastMade, lastRemoved); n += 3) {
        if (n <= lastMade) {
          const crash = crashAfter(n)
          const made = yield* Effect.exit(
            settle(world, resource).pipe(Effect.provideService(ExternalCallHook, crash.hook))
          )
          const hit = crash.hit()
          assert.strictEqual(Exit.isFailure(made), hit !== undefined)
          if (hit !== undefined) hits.add(hit)
          else lastMade = Math.min(lastMade, n)
          yield* settle(world, resource)
          yield* whole(world, resource, String(hit))
        } else yield* settle(world, resource)
        if (n <= lastRemoved) {
          const crash = crashAfter(n)
          yield* Effect.exit(settle(world, without).pipe(Effect.provideService(ExternalCallHook, crash.hook)))
          const hit = crash.hit()
          if (hit !== undefined) hits.add(hit)
          else lastRemoved = Math.min(lastRemoved, n)
          yield* settle(world, without)
          yield* removed(world, without, String(hit))
        } else yield* settle(world, without)
      }
      assert.strictEqual(yield* rowsIn(world, without), 1000)
    })
    yield* Effect.forEach([1, 2, 3], from, { concurrency: 3, discard: true })
    assert.includeMembers([...hits], [...makingActs, ...removingActs])
  })
)

it.live(
  "every step taken twice leaves what one leaves, and what is as it should be is left alone",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world)
      yield* asControlPlane(world, resource, (target, current) => reachGoal(target, current, 60_000, 2))
      yield* fill(world, resource)
      yield* whole(world, resource, "each step was taken twice")
      const writes: Array<string> = []
      yield* settle(world, resource).pipe(Effect.provideService(ExternalCallHook, recordWrites(writes)))
      assert.deepStrictEqual(writes, [])
      yield* asControlPlane(world, { ...resource, deleting: true }, (target, current) =>
        reachGoal(target, current, 60_000, 2)
      )
      for (const one of [resource, standby(world, resource, 1), standby(world, resource, 2)])
        assert.deepStrictEqual(yield* databaseRemains(world, one), [])
    }).pipe(Effect.scoped),
  minutes(12)
)
