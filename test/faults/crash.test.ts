/** Faults with real processes: the control plane as its own program, killed without warning. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { createClient } from "redis"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { killNaming, serversNaming } from "#test/setup/processes.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { makePlane, type Plane, planesOnSharedServer, planesWorld } from "./planes.ts"

const names = (count: number) =>
  Array.from({ length: count }, (_, i) => `cache-${String(i).padStart(2, "0")}`)
const everything = async (plane: Plane) => {
  const { body } = await plane.call("GET", "/v1/orgs/main/resources?limit=100")
  return body.items as ReadonlyArray<{
    uid: string
    kind: string
    phase: string
    observedGeneration: number
    generation: number
  }>
}
const allReady = (plane: Plane, count: number) =>
  until("everything is ready", async () => {
    const items = await everything(plane)
    const missing = items.filter((one) => one.phase !== "ready" || one.observedGeneration !== one.generation)
    if (items.length === count && missing.length === 0) return true
    throw new Error(`${items.length} of ${count}, not ready: ${JSON.stringify(missing.slice(0, 3))}`)
  })

const apply = async (plane: Plane, project: object) => {
  const applied = await plane.call("POST", "/v1/orgs/main/manifest/apply", {
    manifest: { version: 1, organization: "main", projects: [project] }
  })
  assert.strictEqual(applied.status, 202, JSON.stringify(applied.body))
}
/** Each cache has one folder and one server, and nothing else has. */
const cachesOnce = async (plane: Plane, base: string) => {
  const folders = fs.readdirSync(path.join(base, "data", "caches"))
  const uids = (await everything(plane)).filter(({ kind }) => kind === "Cache").map(({ uid }) => uid)
  assert.sameMembers(folders, uids)
  for (const uid of uids) {
    const found = serversNaming(uid)
    assert.strictEqual(found.length, 1, `one server for ${uid}: ${JSON.stringify(found)}`)
  }
}

campaign(
  it.live,
  "apply-kills",
  "a control plane that is killed at random moments of an apply loses nothing, doubles nothing and converges",
  // The test below kills one during an apply.
  { roundMs: 900_000, rounds: 0 },
  Effect.fnUntraced(function* ({ seed }) {
    const random = new Seeded(seed)
    const [count, kills] = [random.int(5, 40), random.int(1, 8)]
    const { base, store, planes } = yield* planesWorld
    yield* Effect.promise(async () => {
      const plane = await makePlane(base, store.url)
      planes.push(plane)
      await plane.start()
      const caches = names(count).map((name) => ({ name, region: "local", persistence: "none" }))
      const project = { name: "Crash", slug: "crash", runtimeClass: "always-on", env: { A: "1" }, caches }
      await apply(plane, project)
      for (let kill = 0; kill < kills; kill++) {
        await sleep(random.between(0, 400))
        await plane.kill("SIGKILL")
        await plane.start()
      }
      await allReady(plane, count + 4)
      await cachesOnce(plane, base)
      assert.strictEqual(fs.readdirSync(path.join(base, "data", "ports")).length, count)
    })
  })
)

it.live(
  "killed during an apply, a control plane doubles nothing; servers outlive it, and killed ones come back with their data",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesOnSharedServer
      yield* Effect.promise(async () => {
        const plane = await makePlane(base, store.url)
        planes.push(plane)
        await plane.start()
        const caches = names(3).map((name) => ({ name, sku: "cache-n1", region: "local" }))
        const databases = [{ name: "main", sku: "db-n1", region: "local" }]
        await apply(plane, { name: "Keep", slug: "keep", runtimeClass: "always-on", caches, databases })
        await until("some of it is there", () => fs.existsSync(path.join(base, "data", "caches")))
        await plane.crash()
        await plane.start()
        await allReady(plane, 7)
        await cachesOnce(plane, base)
        assert.strictEqual(fs.readdirSync(path.join(base, "data", "ports")).length, 4)

        const projects = "/v1/orgs/main/projects/keep"
        const [{ id: cacheId }] = (await plane.call("GET", `${projects}/caches`)).body
        const rotated = async (target: string) => {
          const { status, body } = await plane.call("POST", target)
          assert.strictEqual(status, 200, JSON.stringify(body))
          return String(body.connectionString)
        }
        const cacheUrl = await rotated(`${projects}/caches/${cacheId}/credentials/rotate`)
        const databaseUrl = await rotated(`${projects}/database/rotate`)
        await allReady(plane, 7)
        const servers = (await everything(plane)).filter(
          ({ uid, kind }) => uid === cacheId || kind === "Database"
        )
        const ca = String((await plane.call("GET", "/v1/ca.pem")).body)
        const redis = async <A>(body: (client: ReturnType<typeof createClient>) => Promise<A>) => {
          const client = createClient({
            url: cacheUrl,
            socket: { tls: true, ca, reconnectStrategy: false }
          })
          client.on("error", () => undefined)
          try {
            await client.connect()
            return await body(client as ReturnType<typeof createClient>)
          } finally {
            if (client.isOpen) client.destroy()
          }
        }
        const query = async (statement: string) => {
          const sql = postgres(databaseUrl.replace(/\?.*/, ""), {
            ssl: { ca },
            max: 1,
            connect_timeout: 5,
            onnotice: () => {}
          })
          try {
            return await sql.unsafe(statement)
          } finally {
            await sql.end({ timeout: 1 })
          }
        }
        await redis((client) => client.set("kept", "yes"))
        await query("create table ledger (n int); insert into ledger values (1), (2)")
        // Its server may answer before it writes: while it waits for the disk, it puts that off.
        const appended = path.join(base, "data", "caches", cacheId, "appendonlydir")
        await until("it is in the append-only file", () =>
          fs.readdirSync(appended).some((name) => fs.readFileSync(path.join(appended, name)).includes("kept"))
        )

        await plane.crash()
        assert.strictEqual(await redis((client) => client.get("kept")), "yes")
        assert.strictEqual((await query("select * from ledger")).length, 2)
        await plane.start()
        await allReady(plane, 7)

        // Nobody would look at them for a long time: that they have ended has to be noticed.
        const state = postgres(store.url, { max: 1, onnotice: () => {} })
        await until("their next looks are far away", async () => {
          const put =
            await state`update work set due_at = now() + interval '1 hour', rank = now() + interval '1 hour'
            where uid in ${state(servers.map(({ uid }) => uid))} and lease_token is null`
          return put.count === servers.length
        })
        await state.end()
        for (const { uid } of servers) killNaming(uid)
        await until("the cache is back", async () => (await redis((client) => client.get("kept"))) === "yes")
        await until("the database is back", async () => (await query("select * from ledger")).length === 2)
      })
    }).pipe(Effect.scoped),
  900_000
)
