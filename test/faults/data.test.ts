/**
 * Kills at random, while a database is written to, backed up, branched, promoted and restored: the control plane, the
 * database servers and those that recover a copy, the object store that backups go to.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import {
  type BranchPlane,
  branchOf,
  debris,
  open,
  planeWithObjectStore,
  project,
  query
} from "#test/branches/planes.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { processesNaming, signal } from "#test/setup/processes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import type { Plane } from "./planes.ts"

/** Repeats a request until the control plane answers it. */
const persist = (plane: Plane, method: string, target: string, body?: unknown) =>
  until(`${method} ${target} is answered`, async () => {
    const answer = await plane.call(method, target, body)
    if (answer.status < 500) return answer
    throw new Error(JSON.stringify(answer.body))
  })

/** Writes number after number over a connection that may break, and knows which were acknowledged. */
const ledger = (world: BranchPlane) => {
  let acknowledged = 0
  let going = true
  const done = (async () => {
    while (going) {
      const sql = open(world, world.databaseUrl)
      try {
        while (going) {
          const n = acknowledged + 1
          await sql`insert into ledger values (${n}) on conflict do nothing`
          acknowledged = n
          await sleep(25)
        }
      } catch {
        await sleep(50)
      } finally {
        await sql.end({ timeout: 1 }).catch(() => {})
      }
    }
  })()
  return {
    acknowledged: () => acknowledged,
    stop: async () => {
      going = false
      await done
    }
  }
}

/** Main processes of database servers, and of recoveries, in this folder. */
const servers = (dataDir: string): ReadonlyArray<number> =>
  processesNaming(path.join(dataDir, "databases"))
    .map(({ pid }) => pid)
    .filter((pid) => {
      try {
        return /\/postgres\0-D\0/.test(fs.readFileSync(`/proc/${pid}/cmdline`, "utf8"))
      } catch {
        return false
      }
    })

campaign(
  it.live,
  "data-kills",
  "whatever is killed while data is backed up, copied, promoted and restored: nothing is lost, doubled or left behind",
  // Kept for long runs: the control plane is killed in test/branches/killed, servers in life beside it, whoever carries
  // a copy in test/backups/copies, and the object store fails in test/backups/trouble and s3-place.
  { roundMs: 1_800_000, rounds: 0 },
  Effect.fnUntraced(function* ({ seed, full }) {
    const random = new Seeded(seed)
    const { far, world } = yield* planeWithObjectStore
    yield* Effect.promise(async () => {
      const { plane, dataDir, databaseId } = world
      await query(world, world.databaseUrl, "create table ledger (n int primary key)")
      const numbers = (url: string) => query(world, url, "select n from ledger order by n")
      const prefix = (held: ReadonlyArray<unknown>) =>
        assert.deepStrictEqual(
          held,
          held.map((_, index) => index + 1),
          "a prefix of what was written"
        )

      const soon = () => sleep(random.between(0, 3_000))
      /** Kills the control plane, a server and the object store, each at a moment of its own. */
      const killed = () =>
        Promise.all([
          soon().then(async () => {
            await (full ? plane.kill("SIGKILL") : plane.crash())
            await plane.start()
          }),
          soon().then(() => {
            const pids = servers(dataDir)
            const pid = random.pick(pids)
            if (pid !== undefined) signal(pid, "SIGKILL")
          }),
          soon().then(async () => {
            await far.kill()
            await soon()
            await far.restart()
          })
        ])

      const succeeded = (id: string) =>
        until(
          "the backup is at both places",
          async () => {
            const { body } = await plane.call("GET", `${project}/databases/${databaseId}/backups`)
            const one = body.find((it: { id: string }) => it.id === id)
            assert.notStrictEqual(one?.status, "failed", JSON.stringify(one))
            const complete = one.locations.filter((it: { complete: boolean }) => it.complete)
            if (one.status === "succeeded" && complete.length === 2) return one
            throw new Error(JSON.stringify(one))
          },
          300
        )
      const settled = (id: string, wanted: string) =>
        until(
          `the branch is ${wanted}`,
          async () => {
            const { body } = await plane.call("GET", `${world.base}/${id}`)
            assert.notStrictEqual(body.status, "failed", JSON.stringify(body))
            if (body.status === wanted) return body
            throw new Error(JSON.stringify(body))
          },
          300
        )
      const branch = async (name: string, source: object) => {
        const made = await persist(plane, "POST", world.base, branchOf(name, source))
        // The answer of the first request may have been lost with the control plane.
        assert.include([202, 409], made.status, JSON.stringify(made.body))
        const all = (await persist(plane, "GET", world.base)).body
        const { id } = all.find((one: { name: string }) => one.name === name)
        await killed()
        await settled(id, "ready")
        return String(id)
      }
      const urlOf = async (id: string) => {
        const { body } = await persist(plane, "POST", `${world.base}/${id}/rotate`)
        return String(body.connectionString)
      }

      const writing = ledger(world)
      // A backup, kept here and far away.
      const asked = await persist(plane, "POST", `${project}/databases/${databaseId}/backups`, {})
      assert.strictEqual(asked.status, 202, JSON.stringify(asked.body))
      if (full) {
        await killed()
        await succeeded(asked.body.id)
      }

      // A copy of the running database, which a short round kills together with the backup.
      const before = writing.acknowledged()
      const copy = await branch("copy", { kind: "current" })
      await succeeded(asked.body.id)
      await writing.stop()
      const copied = await until("the copy answers", async () => numbers(await urlOf(copy)))
      prefix(copied)
      assert.isAtLeast(copied.length, before)

      // The copy takes the database's place; what was there is kept.
      const promoted = await persist(plane, "POST", `${world.base}/${copy}/promote`)
      assert.include([202, 409], promoted.status, JSON.stringify(promoted.body))
      await killed()
      await settled(copy, "promoted")
      const now = await until("the database has the copy's data", async () => {
        const held = await numbers(world.databaseUrl)
        return held.length === copied.length && held
      })
      prefix(now)
      const kept = (await persist(plane, "GET", world.base)).body.find((one: { name: string }) =>
        one.name.includes("-before-")
      )
      await settled(kept.id, "ready")
      const all = await until("what was replaced answers", async () => numbers(await urlOf(kept.id)))
      prefix(all)
      assert.isAtLeast(all.length, writing.acknowledged(), "nothing acknowledged is lost")

      // The promoted data has backups of its own; they come back from far away alone. Without kills:
      // test/branches/lost-folder.test.ts and far-away.test.ts.
      if (full) {
        const again = await persist(plane, "POST", `${project}/databases/${databaseId}/backups`, {})
        assert.strictEqual(again.status, 202, JSON.stringify(again.body))
        await killed()
        await succeeded(again.body.id)
        fs.rmSync(path.join(dataDir, "backups"), { recursive: true, force: true, maxRetries: 10 })
        const restored = await branch("restored", { kind: "backup", backupId: again.body.id })
        assert.deepStrictEqual(await until("it answers", async () => numbers(await urlOf(restored))), now)
      }

      for (const { id } of (await plane.call("GET", world.base)).body) {
        await until("it can be deleted", async () => {
          const { status } = await plane.call("DELETE", `${world.base}/${id}`)
          return status === 200 || status === 404
        })
      }
      await debris(world)
      await until("one server is left", () => servers(dataDir).length === 1)
      assert.strictEqual(await far.openUploads(), 0)
    })
  })
)
