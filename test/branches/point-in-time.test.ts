/** With a writer at work all the time, a branch of a moment holds what was committed before it, and nothing else. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { branchOf, branchPlane, debris, open, query, ready, urlOf } from "./planes.ts"

const atOnce = 4

campaign(
  it.live,
  "moments",
  "a branch of a random moment holds exactly the transactions that were committed before it",
  // Of one moment test/backups/restore shows it, and of two through a control plane test/replicas/whole.
  { roundMs: 1_500_000, rounds: 0 },
  Effect.fnUntraced(function* ({ seed, full }) {
    const random = new Seeded(seed)
    const branches = full ? 20 : 2
    const world = yield* branchPlane
    yield* Effect.promise(async () => {
      const { plane, databaseUrl, databaseId, base } = world
      await query(world, databaseUrl, "create table ledger (n int primary key)")
      const points = `/v1/orgs/main/projects/shop/databases/${databaseId}/recovery-points`
      await until("the first backup", async () => {
        const { body } = await plane.call("GET", points)
        if (body.windows.length > 0) return true
        throw new Error(JSON.stringify(body))
      })

      /** When each number was sent, and when its commit was known. */
      const commits: Array<{ readonly sent: number; readonly known: number }> = []
      let writing = true
      const writer = (async () => {
        const sql = open(world, databaseUrl)
        while (writing) {
          const sent = Date.now()
          await sql`insert into ledger values (${commits.length + 1})`
          commits.push({ sent, known: Date.now() })
          await sleep(20)
        }
        await sql.end()
      })()
      await until("there is something to tell moments apart by", () => commits.length > 50)

      const distinct = new Set<number>()
      const branchOfMoment = async (index: number) => {
        const from = commits[0]?.known ?? 0
        const moment = Math.floor(random.between(from, Date.now()))
        const made = await plane.call(
          "POST",
          base,
          branchOf(`at-${index}`, { kind: "point_in_time", pointInTime: new Date(moment).toISOString() })
        )
        assert.strictEqual(made.status, 202, JSON.stringify(made.body))
        await ready(world, made.body.id)
        const numbers = await query(
          world,
          await urlOf(world, made.body.id),
          "select n from ledger order by n"
        )
        assert.deepStrictEqual(
          numbers,
          numbers.map((_, index) => index + 1),
          "a prefix of what was written"
        )
        assert.isAtLeast(numbers.length, commits.filter(({ known }) => known < moment).length)
        assert.isAtMost(numbers.length, commits.filter(({ sent }) => sent <= moment).length + 1)
        distinct.add(numbers.length)
        assert.strictEqual((await plane.call("DELETE", `${base}/${made.body.id}`)).status, 200)
      }
      const rest = Array.from({ length: branches }, (_, index) => index).values()
      await Promise.all(
        Array.from({ length: atOnce }, async () => {
          for (const index of rest) await branchOfMoment(index)
        })
      )
      assert.isAtLeast(distinct.size, branches / 2, "the moments differ")

      // What is not in the window is refused before anything is made.
      for (const pointInTime of ["2020-01-01T00:00:00Z", new Date(Date.now() + 3_600_000).toISOString()]) {
        const refused = await plane.call("POST", base, branchOf("no", { kind: "point_in_time", pointInTime }))
        assert.deepStrictEqual([refused.status, refused.body.code], [422, "outside_recovery_window"])
      }
      const backupId = crypto.randomUUID()
      const unknown = await plane.call("POST", base, branchOf("no", { kind: "backup", backupId }))
      assert.strictEqual(unknown.status, 422)

      // A restore is such a branch that takes the database's place.
      writing = false
      await writer
      // Not of the millisecond of the last commit, which would not be before it.
      const before = new Date((commits.at(-1)?.known ?? 0) + 1)
      await sleep(50)
      await query(world, databaseUrl, "delete from ledger")
      const restored = await plane.call(
        "POST",
        `/v1/orgs/main/projects/shop/databases/${databaseId}/backups/restore`,
        {
          pointInTime: before.toISOString()
        }
      )
      assert.strictEqual(restored.status, 202, JSON.stringify(restored.body))
      await until("the ledger is back", async () => {
        const [count] = await query(world, databaseUrl, "select count(*)::int from ledger")
        return count === commits.length
      })
      for (const { id } of (await plane.call("GET", base)).body) {
        await until("it can be deleted", async () => {
          const { status } = await plane.call("DELETE", `${base}/${id}`)
          return status === 200 || status === 404
        })
      }
      await debris(world)
    })
  })
)
