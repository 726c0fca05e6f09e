/** An orderly end of the control plane in the middle of a recovery, which is a server process of its own. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { branchOf, branchPlane, debris, query, ready, urlOf } from "./planes.ts"

campaign(
  it.live,
  "recovery-stopped",
  "a control plane that is stopped during a recovery leaves no process of it; the next one makes the branch",
  { rounds: 0, roundMs: 900_000 },
  () =>
    Effect.gen(function* () {
      const world = yield* branchPlane
      yield* Effect.promise(async () => {
        const { plane, databaseUrl, base, folderOf } = world
        await query(world, databaseUrl, "create table ledger as select generate_series(1, 100000) as n")
        let [id, made] = ["", 0]
        const inFolder = () => processesNaming(`${folderOf(id)}/hydrating-`)
        const replaying = async () => {
          for (let looks = 0; looks < 50; looks++) {
            if (inFolder().some(({ line }) => line.includes(" -D "))) return true
            await sleep(2)
          }
          return false
        }
        // One whose log was replayed between two looks makes room for another.
        await until("the log of a branch is replayed", async () => {
          if (id !== "" && (await replaying())) return true
          if (id !== "" && (await plane.call("GET", `${base}/${id}`)).body.fullyHydrated !== true)
            return false
          id = String((await plane.call("POST", base, branchOf(`copy-${++made}`))).body.id)
          return replaying()
        })
        await plane.kill("SIGTERM")
        // What it had begun itself, such as having files on the disk, may take a moment to end.
        await until("no process of it is left", () => inFolder().length === 0, 30)
        await plane.start()
        await ready(world, id)
        assert.deepStrictEqual(
          await query(world, await urlOf(world, id), "select count(*)::int from ledger"),
          [100_000]
        )
        await debris(world)
      })
    }).pipe(Effect.scoped)
)
