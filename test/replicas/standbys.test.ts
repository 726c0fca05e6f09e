import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { asApplication, databaseRemains, databaseWorld } from "#test/setup/databases.ts"
import {
  changed,
  eventually,
  makeReplicated,
  rowsIn,
  seen,
  settle,
  standby,
  statusOf
} from "#test/setup/replicas.ts"

const minutes = 60_000

it.live(
  "what is written on the primary can be read from both standbys, over TLS with the same password, and only read",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world)
      yield* settle(world, resource)
      const status = statusOf(yield* seen(world, resource))
      assert.deepStrictEqual(
        status.replicas?.map(({ number, state, problem }) => ({ number, state, problem })),
        [
          { number: 1, state: "streaming", problem: null },
          { number: 2, state: "streaming", problem: null }
        ]
      )
      assert.strictEqual(new Set([status.port, ...(status.replicas ?? []).map(({ port }) => port)]).size, 3)

      yield* asApplication(world, resource, (sql) =>
        sql.unsafe("create table ledger (n int); insert into ledger select generate_series(1, 1000)")
      )
      for (const number of [1, 2]) {
        const copy = standby(world, resource, number)
        yield* eventually(
          `standby ${number} has the rows`,
          Effect.map(rowsIn(world, copy), (n) => n === 1000)
        )
        const refused = yield* Effect.flip(
          asApplication(world, copy, (sql) => sql`insert into ledger values (0)`)
        )
        assert.match(String(refused.cause), /read-only transaction/)
        const unencrypted = yield* Effect.flip(
          asApplication(world, copy, (sql) => sql`select 1`, { ssl: false })
        )
        assert.match(String(unencrypted.cause), /pg_hba|encryption/)
      }

      // Without them nothing of them is left, and with them again they are copied anew.
      const without = changed(resource, { replicas: 0 })
      yield* settle(world, without)
      for (const number of [1, 2])
        assert.deepStrictEqual(yield* databaseRemains(world, standby(world, resource, number)), [])
      assert.isUndefined(statusOf(yield* seen(world, without)).replicas)
      assert.strictEqual(yield* rowsIn(world, resource), 1000)
      yield* settle(world, changed(without, { replicas: 2 }))
      for (const number of [1, 2])
        assert.strictEqual(yield* rowsIn(world, standby(world, resource, number)), 1000)

      yield* settle(world, { ...resource, deleting: true })
      assert.deepStrictEqual(yield* databaseRemains(world, resource), [])
    }).pipe(Effect.scoped),
  3 * minutes
)
