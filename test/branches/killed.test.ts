/** The control plane as its own program, killed without warning while branches are made, promoted and deleted. */
import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { branchOf, branchPlane, debris, project, query, ready, urlOf } from "./planes.ts"

const count = "select count(*)::int from ledger"

campaign(
  it.live,
  "branch-kills",
  "a control plane that is killed at random moments makes, promotes and deletes branches all the same",
  { rounds: 0, roundMs: 1_500_000 },
  Effect.fnUntraced(function* ({ seed, full }) {
    const random = new Seeded(seed)
    // Large enough that its copy takes a while.
    const megabytes = full ? 300 : 30
    const moments = (count: number, most: number) =>
      Array.from({ length: count }, () => random.between(0, most))
    const world = yield* branchPlane
    yield* Effect.promise(async () => {
      const { plane, databaseUrl, base, folderOf, databaseId } = world
      await query(
        world,
        databaseUrl,
        `create table ledger as select n, repeat(md5(n::text), 30) as filling from generate_series(1, ${megabytes * 1_000}) n`
      )
      const rows = megabytes * 1_000
      const killed = async (after: number) => {
        await sleep(after)
        await (full ? plane.kill("SIGKILL") : plane.crash())
        await plane.start()
      }
      // While it is copied and replayed, at moments that are spread over it.
      const made = await plane.call("POST", base, branchOf("copy"))
      const id = String(made.body.id)
      const half: Array<number> = []
      for (const after of full ? moments(5, 2_000) : [300]) {
        await killed(after)
        const { body } = await plane.call("GET", `${base}/${id}`)
        half.push(body.hydrationProgressPercent)
        assert.isTrue(body.fullyHydrated || body.hydrationProgressPercent < 100, JSON.stringify(body))
      }
      await ready(world, id)
      assert.deepStrictEqual(await query(world, await urlOf(world, id), count), [rows])
      await until(
        "nothing is left of the copy",
        () => fs.readdirSync(folderOf(id)).filter((name) => name.startsWith("hydrating-")).length === 0
      )

      // While it is promoted: the database has the data of the branch, and a branch has the data of the database.
      await query(world, databaseUrl, "insert into ledger values (-1)")
      const promoted = await plane.call("POST", `${base}/${id}/promote`)
      assert.strictEqual(promoted.status, 202, JSON.stringify(promoted.body))
      for (const after of full ? moments(4, 300) : [50]) await killed(after)
      await until("the branch is promoted", async () => {
        const { body } = await plane.call("GET", `${base}/${id}`)
        if (body.status === "promoted") return true
        throw new Error(JSON.stringify(body))
      })
      await until("the database is back", async () => {
        const found = await query(world, databaseUrl, count)
        assert.deepStrictEqual(found, [rows])
        return true
      })
      const { body } = await plane.call("GET", base)
      const kept = body.find((one: { source: { kind: string } }) => one.source.kind === "replaced")
      await ready(world, kept.id)
      assert.deepStrictEqual(await query(world, await urlOf(world, kept.id), count), [rows + 1])

      // While it is deleted, in the middle of its copy.
      const doomed = String((await plane.call("POST", base, branchOf("doomed"))).body.id)
      await sleep(random.between(200, 1_000))
      assert.strictEqual((await plane.call("DELETE", `${base}/${doomed}`)).status, 200)
      await killed(30)
      await until("it is gone", async () => (await plane.call("GET", `${base}/${doomed}`)).status === 404)
      await until("the database is ready", async () => {
        const answer = await plane.call("GET", `${project}/database`)
        return answer.body.status === "ready"
      })
      await debris(world)
      assert.isTrue(fs.existsSync(folderOf(databaseId)))
    })
  })
)
