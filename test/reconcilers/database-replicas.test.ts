/** What the shared suite proves of a kind, for the standbys of a database: they are made, mended and removed in steps. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { OutsideHook } from "#src/engine/outside.ts"
import {
  asApplication,
  type DatabaseResource,
  type DatabaseWorld,
  databaseRemains,
  databaseWorld,
  disturb
} from "#test/setup/databases.ts"
import {
  asControlPlane,
  changed,
  eventually,
  makeReplicated,
  rowsIn,
  seen,
  settle,
  standby,
  statusOf
} from "#test/setup/replicas.ts"
import { reachGoal } from "./settle.ts"
import { crashAfter, recordWrites } from "./suite.ts"

const minutes = 60_000

const whole = (world: DatabaseWorld, resource: DatabaseResource, after: string) =>
  Effect.gen(function* () {
    assert.deepStrictEqual(
      statusOf(yield* seen(world, resource)).replicas?.map(({ state }) => state),
      ["streaming", "streaming"],
      after
    )
    for (const number of [1, 2]) {
      yield* eventually(
        `standby ${number} has the rows after ${after}`,
        Effect.map(rowsIn(world, standby(world, resource, number)), (n) => n === 1000)
      )
    }
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

it.live(
  "a control plane that dies after any act of making or removing standbys is followed by one that ends it",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const without = makeReplicated(world, { replicas: 0 })
      const resource = changed(without, { replicas: 2 })
      yield* settle(world, without)
      yield* asApplication(world, without, (sql) =>
        sql.unsafe("create table ledger (n int); insert into ledger select generate_series(1, 1000)")
      )
      const hits = new Set<string>()
      let [making, removing] = [true, true]
      for (let n = 1; making || removing; n++) {
        const crash = crashAfter(n)
        const made = yield* Effect.exit(
          settle(world, resource).pipe(Effect.provideService(OutsideHook, crash.hook))
        )
        assert.strictEqual(Exit.isFailure(made), crash.hit() !== undefined)
        yield* settle(world, resource)
        yield* whole(world, resource, String(crash.hit()))
        const another = crashAfter(n)
        yield* Effect.exit(settle(world, without).pipe(Effect.provideService(OutsideHook, another.hook)))
        yield* settle(world, without)
        yield* removed(world, without, String(another.hit()))
        making = crash.hit() !== undefined
        removing = another.hit() !== undefined
        for (const hit of [crash.hit(), another.hit()]) if (hit !== undefined) hits.add(hit)
      }
      assert.includeMembers(
        [...hits],
        [
          "postgres.claim",
          "postgres.reservePort",
          "postgres.writeCertificate",
          "postgres.writeFiles",
          "postgres.dropData",
          "postgres.makeSlot",
          "hydration.begin",
          "postgres.start",
          "hydration.cancel",
          "postgres.stop",
          "postgres.delete",
          "postgres.dropSlots"
        ]
      )
      assert.strictEqual(yield* rowsIn(world, without), 1000)
    }).pipe(Effect.scoped),
  10 * minutes
)

it.live(
  "every step taken twice leaves what one leaves, and what is as it should be is left alone",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world)
      yield* asControlPlane(world, resource, (target, current) => reachGoal(target, current, 60_000, 2))
      yield* asApplication(world, resource, (sql) =>
        sql.unsafe("create table ledger (n int); insert into ledger select generate_series(1, 1000)")
      )
      yield* whole(world, resource, "each step was taken twice")
      const writes: Array<string> = []
      yield* settle(world, resource).pipe(Effect.provideService(OutsideHook, recordWrites(writes)))
      assert.deepStrictEqual(writes, [])
      yield* asControlPlane(world, { ...resource, deleting: true }, (target, current) =>
        reachGoal(target, current, 60_000, 2)
      )
      for (const one of [resource, standby(world, resource, 1), standby(world, resource, 2)])
        assert.deepStrictEqual(yield* databaseRemains(world, one), [])
    }).pipe(Effect.scoped),
  3 * minutes
)
