/** An orderly end of the control plane in the middle of a recovery, which is a server process of its own. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { until } from "#test/faults/wait.ts"
import { processesNaming } from "#test/setup/caches.ts"
import { branchOf, branchPlane, debris, query, ready, urlOf } from "./planes.ts"

it.live(
  "a control plane that is stopped during a recovery leaves no process of it; the next one makes the branch",
  () =>
    Effect.gen(function* () {
      const world = yield* branchPlane
      yield* Effect.promise(async () => {
        const { plane, databaseUrl, base, folderOf } = world
        await query(world, databaseUrl, "create table ledger as select generate_series(1, 100000) as n")
        const id = String((await plane.call("POST", base, branchOf("copy"))).body.id)
        const inFolder = () => processesNaming(`${folderOf(id)}/hydrating-`)
        await until("its log is replayed", () => inFolder().some(({ line }) => line.includes(" -D ")))
        await plane.kill("SIGTERM")
        assert.deepStrictEqual(inFolder(), [])
        await plane.start()
        await ready(world, id)
        assert.deepStrictEqual(
          await query(world, await urlOf(world, id), "select count(*)::int from ledger"),
          [100_000]
        )
        await debris(world)
      })
    }).pipe(Effect.scoped),
  180_000
)
