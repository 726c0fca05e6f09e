/** What is left when the machine's disk is not: a moment comes back from the object store alone. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { killNaming } from "#test/setup/processes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { planeWithObjectStore, project, query } from "./planes.ts"

campaign(
  it.live,
  "far-away-restore",
  "a moment is restored from the object store alone, after the database's folder and everything kept beside it is gone",
  { rounds: 0, roundMs: 1_200_000 },
  () =>
    Effect.gen(function* () {
      const { far, world } = yield* planeWithObjectStore
      yield* Effect.promise(async () => {
        const { plane, dataDir, databaseId, storeUrl } = world
        const points = `${project}/databases/${databaseId}/recovery-points`
        await until("the first backup", async () => (await plane.call("GET", points)).body.windows.length > 0)
        await query(
          world,
          world.databaseUrl,
          "create table ledger (n int); insert into ledger values (1), (2)"
        )
        await sleep(50)
        const moment = Date.now()
        await sleep(50)
        await query(world, world.databaseUrl, "insert into ledger values (3)")
        const backups = `${project}/databases/${databaseId}/backups`
        const asked = await plane.call("POST", backups, {})
        assert.strictEqual(asked.status, 202, JSON.stringify(asked.body))
        // A copy of it counts as complete together with the log up to its end, which is after the moment.
        await until("the backup and the log before it are in the object store", async () => {
          const { body } = await plane.call("GET", backups)
          const one = body.find(({ id }: { id: string }) => id === asked.body.id)
          if (
            one.locations.some(
              (it: { kind: string; complete: boolean }) => it.kind !== "local" && it.complete
            )
          )
            return true
          throw new Error(JSON.stringify(one))
        })
        // And the backup before the moment, with the log from there on.
        const store = postgres(storeUrl, { max: 1, onnotice: () => {} })
        await until("everything else is there as well", async () => {
          const [row] = await store`select count(*)::int as left from backup_copy where stored_at is null`
          return row?.["left"] === 0
        })
        await store.end()

        killNaming(world.folderOf(databaseId))
        fs.rmSync(path.join(dataDir, "backups"), { recursive: true, force: true, maxRetries: 10 })
        fs.rmSync(path.join(world.folderOf(databaseId), "data"), {
          recursive: true,
          force: true,
          maxRetries: 10
        })
        const before = far.requests.length
        const restored = await plane.call("POST", `${backups}/restore`, {
          pointInTime: new Date(moment).toISOString()
        })
        assert.strictEqual(restored.status, 202, JSON.stringify(restored.body))
        const held = await until("the database answers again", () =>
          query(world, world.databaseUrl, "select n from ledger order by n")
        )
        assert.deepStrictEqual(held, [1, 2], "what was committed before the moment, and nothing else")
        assert.isTrue(
          far.requests
            .slice(before)
            .some(({ method, url }) => method === "GET" && url.includes("x-id=GetObject")),
          "it was read from there"
        )
      })
    }).pipe(Effect.scoped)
)
