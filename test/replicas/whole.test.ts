/** Standbys in a whole control plane: from the manifest to the failover, with a writer at work and backups going on. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import {
  type BranchPlane,
  branchOf,
  branchPlane,
  open,
  project,
  query,
  ready,
  urlOf
} from "#test/branches/planes.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { sleep, until } from "#test/setup/wait.ts"

const manifest = {
  version: 1,
  organization: "main",
  projects: [
    {
      name: "Shop",
      slug: "shop",
      runtimeClass: "scale-to-zero",
      databases: [{ name: "main", sku: "db-n1", region: "local", replicas: 2 }]
    }
  ]
}

const databaseOf = async ({ plane }: BranchPlane) => (await plane.call("GET", `${project}/database`)).body

/** The connection string of a standby. */
const urlAt = ({ databaseUrl }: BranchPlane, { host, port }: { host: string; port: number }): string => {
  const url = new URL(databaseUrl)
  url.hostname = host
  url.port = String(port)
  return url.href
}

const withStandbys = async (world: BranchPlane) => {
  const applied = await world.plane.call("POST", "/v1/orgs/main/manifest/apply", { manifest })
  assert.isBelow(applied.status, 300, JSON.stringify(applied.body))
  await streaming(world)
}
const streaming = (world: BranchPlane) =>
  until("both standbys stream", async () => {
    const { replicas } = await databaseOf(world)
    if (replicas.length === 2 && replicas.every(({ state }: { state: string }) => state === "streaming"))
      return true
    throw new Error(JSON.stringify(replicas))
  })

campaign(
  it.live,
  "standby-life",
  "a database with standbys outlives the loss of its data and of the control plane, is restored to before and after, and takes a branch's data",
  { rounds: 0, roundMs: 1_500_000 },
  () =>
    Effect.gen(function* () {
      const world = yield* branchPlane
      yield* Effect.promise(async () => {
        const { plane, databaseUrl, databaseId, base } = world
        const planned = async () =>
          (await plane.call("POST", "/v1/orgs/main/manifest/plan", manifest)).body.changes
            .filter(({ action }: { action: string }) => action !== "noop")
            .map(({ patch }: { patch: ReadonlyArray<{ op: string }> }) =>
              patch.filter(({ op }) => op !== "test")
            )
        assert.deepStrictEqual(await planned(), [[{ op: "replace", path: "/replicas", value: 2 }]])
        await withStandbys(world)
        assert.deepStrictEqual(await planned(), [], "a plan of what is there changes nothing")

        await query(world, databaseUrl, "create table ledger (n int primary key)")
        const points = `${project}/databases/${databaseId}/recovery-points`
        await until("the first backup", async () => (await plane.call("GET", points)).body.windows.length > 0)
        const known = new Map<number, number>()
        let last = 0
        let writing = true
        const writer = (async () => {
          for (let n = 1; writing; ) {
            const sql = open(world, databaseUrl)
            try {
              for (; writing; n++) {
                await sql`insert into ledger values (${n}) on conflict do nothing`
                last = Date.now()
                known.set(n, last)
                await sleep(25)
              }
            } catch {
              await sleep(50)
            } finally {
              await sql.end({ timeout: 1 }).catch(() => {})
            }
          }
        })()
        const writtenFor = () => Date.now() - Math.min(...known.values())
        await until("there is something to restore to", () => known.size > 20 && writtenFor() > 3_000)

        // The data goes while nobody looks, and whoever looks then is killed soon after.
        const { replicas } = await databaseOf(world)
        await plane.kill("SIGKILL")
        const acknowledged = Math.max(...known.keys())
        for (const one of replicas)
          await until(
            "what was acknowledged has streamed",
            async () =>
              (await query(world, urlAt(world, one), `select n from ledger where n = ${acknowledged}`))
                .length > 0
          )
        const lostAt = Date.now()
        fs.rmSync(path.join(world.folderOf(databaseId), "data"), {
          recursive: true,
          force: true,
          maxRetries: 10
        })
        await plane.start()
        await plane.call("POST", `/v1/orgs/main/resources/${databaseId}/retry`).catch(() => {})
        await sleep(700)
        await plane.crash()
        await plane.start()
        await plane.call("POST", `/v1/orgs/main/resources/${databaseId}/retry`)
        await until("it has failed over", async () => (await databaseOf(world)).failover?.at !== undefined)
        const back = Date.now()
        await until("it takes writes again", () => last > back)
        await streaming(world)
        const before = known.size
        await until("it has gone on", () => known.size > before + 20)
        writing = false
        await writer
        const there = new Set(await query(world, databaseUrl, "select n from ledger"))
        const missing = [...known].filter(([n]) => !there.has(n))
        assert.deepStrictEqual(
          missing.filter(([n]) => n <= acknowledged),
          [],
          "what had streamed before the loss is there"
        )

        const { body: events } = await plane.call("GET", `/v1/orgs/main/resources/${databaseId}/events`)
        const reasons = new Set(
          (events.items ?? events.data ?? events).map(({ reason }: { reason: string }) => reason)
        )
        assert.isTrue(reasons.has("FailedOver"), JSON.stringify([...reasons]))

        // A moment before the loss, and one after it.
        const after = Date.now()
        await until(
          "the archive reaches it",
          async () => {
            const { windows } = (await plane.call("GET", points)).body
            if (windows.some(({ to }: { to: string }) => Date.parse(to) >= after)) return true
            throw new Error(JSON.stringify(windows))
          },
          400
        )
        let [branchId, branchUrl] = ["", ""]
        for (const moment of [lostAt - 1_000, after]) {
          const made = await plane.call(
            "POST",
            base,
            branchOf(`at-${moment}`, { kind: "point_in_time", pointInTime: new Date(moment).toISOString() })
          )
          assert.strictEqual(made.status, 202, JSON.stringify(made.body))
          branchId = String(made.body.id)
          await ready(world, branchId)
          branchUrl = await urlOf(world, branchId)
          const found = new Set(await query(world, branchUrl, "select n from ledger"))
          const wanted = [...known].filter(([n, at]) => at < moment && there.has(n))
          assert.deepStrictEqual(
            wanted.filter(([n]) => !found.has(n)),
            []
          )
          assert.isAtMost(found.size, wanted.length + 2)
        }

        // When a branch is promoted the standbys are copied from its data, and are no more behind than that.
        await query(world, branchUrl, "delete from ledger where n > 10")
        // The standbys go on to a place in the log where the branch has something else.
        await query(world, databaseUrl, "insert into ledger select generate_series(1000001, 1050000)")
        const { failover } = await databaseOf(world)
        const promoted = await plane.call("POST", `${base}/${branchId}/promote`)
        assert.isBelow(promoted.status, 300, JSON.stringify(promoted.body))
        const count = "select count(*)::int from ledger"
        await until("the data is the branch's", async () => {
          const [rows] = await query(world, databaseUrl, count)
          return rows === 10
        })
        await streaming(world)
        const now = await databaseOf(world)
        assert.deepStrictEqual(now.failover, failover, "that is no failover")
        await query(world, databaseUrl, "insert into ledger values (0)")
        for (const one of now.replicas) {
          await until("the standby has the branch's data", async () => {
            const [rows] = await query(world, urlAt(world, one), count)
            return rows === 11
          })
        }
        assert.strictEqual((await plane.call("DELETE", `${project}/database`)).status, 200)
        await until("nothing is left of the standbys", () =>
          [1, 2].every((number) => !fs.existsSync(world.folderOf(`${databaseId}-${number}`)))
        )
      })
    }).pipe(Effect.scoped)
)
