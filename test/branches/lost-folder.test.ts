/** A database that has been promoted to before is no worse off when all that it has on this machine is gone. */
import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { killNaming } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"
import { branchOf, branchPlane, project, query, ready } from "./planes.ts"

campaign(
  it.live,
  "lost-folder",
  "after a promotion, the loss of the whole folder is told as such, and the newest backup brings the data back",
  { rounds: 0, roundMs: 1_200_000 },
  () =>
    Effect.gen(function* () {
      const world = yield* branchPlane
      yield* Effect.promise(async () => {
        const { plane, base, databaseId, databaseUrl } = world
        const backups = `${project}/databases/${databaseId}/backups`
        const resource = `/v1/orgs/main/resources/${databaseId}`
        const numbers = () => query(world, databaseUrl, "select n from ledger order by n")
        await query(world, databaseUrl, "create table ledger (n int); insert into ledger values (1)")
        const made = await plane.call("POST", base, branchOf("next"))
        assert.strictEqual(made.status, 202, JSON.stringify(made.body))
        await ready(world, made.body.id)
        assert.strictEqual((await plane.call("POST", `${base}/${made.body.id}/promote`)).status, 202)
        await until("it is promoted", async () => {
          const { body } = await plane.call("GET", `${base}/${made.body.id}`)
          return body.status === "promoted"
        })
        await until("it takes writes", () => query(world, databaseUrl, "insert into ledger values (2)"))
        // Whatever was being made of the old data: this one is of the new.
        const asked = await plane.call("POST", backups, {})
        assert.strictEqual(asked.status, 202, JSON.stringify(asked.body))
        await until(
          "the backup of the new history",
          async () => {
            const { body } = await plane.call("GET", backups)
            const one = body.find(({ id }: { id: string }) => id === asked.body.id)
            if (one.status === "succeeded") return true
            throw new Error(JSON.stringify(one))
          },
          300
        )

        killNaming(world.folderOf(databaseId))
        fs.rmSync(world.folderOf(databaseId), { recursive: true, force: true, maxRetries: 10 })
        await plane.call("POST", `${resource}/retry`)
        const { body: spec } = await plane.call("GET", resource)
        const told = await until("the loss is told", async () => {
          const { body } = await plane.call("GET", resource)
          const reasons = body.conditions.map(({ reason }: { reason: string }) => reason)
          if (reasons.includes("DataLost")) return body
          throw new Error(JSON.stringify(body.conditions))
        })
        assert.strictEqual(
          told.status.lineage,
          spec.status.lineage,
          "it is not taken back to its first history"
        )

        const restored = await plane.call("POST", `${backups}/restore`, { backupId: asked.body.id })
        assert.strictEqual(restored.status, 202, JSON.stringify(restored.body))
        assert.deepStrictEqual(await until("it answers again", numbers, 300), [1, 2])
        const { body: past } = await plane.call("GET", `${base}/${made.body.id}`)
        assert.strictEqual(past.status, "promoted", "what was promoted before stays so")
      })
    }).pipe(Effect.scoped)
)
