/** What is left when the machine's disk is not: a moment comes back from the object store alone. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { makePlane, planesWorld } from "#test/faults/planes.ts"
import { sleep, until } from "#test/faults/wait.ts"
import { processesNaming } from "#test/setup/caches.ts"
import { objectStore } from "#test/setup/s3.ts"
import { type BranchPlane, project, query } from "./planes.ts"

it.live(
  "a moment is restored from the object store alone, after the database's folder and everything kept beside it is gone",
  () =>
    Effect.gen(function* () {
      const far = yield* objectStore
      const { base: folder, store, planes } = yield* planesWorld
      yield* Effect.promise(async () => {
        const authority = path.join(folder, "far.pem")
        fs.writeFileSync(authority, far.caPem)
        const plane = await makePlane(folder, store.url, { NODE_EXTRA_CA_CERTS: authority })
        planes.push(plane)
        await plane.start()
        const destination = await plane.call("POST", "/v1/orgs/main/backup-destinations", {
          name: "offsite",
          endpoint: far.endpoint,
          bucket: far.bucket,
          credentials: far.credentials
        })
        assert.strictEqual(destination.status, 201, JSON.stringify(destination.body))
        const backup = { pitrDays: 7, destinationIds: [destination.body.id] }
        const databases = [{ name: "main", sku: "db-n1", region: "local", backup }]
        const shop = { name: "Shop", slug: "shop", runtimeClass: "always-on", databases }
        const applied = await plane.call("POST", "/v1/orgs/main/manifest/apply", {
          manifest: { version: 1, organization: "main", projects: [shop] }
        })
        assert.strictEqual(applied.status, 202, JSON.stringify(applied.body))
        const rotated = await until("the database is ready", async () => {
          const one = await plane.call("POST", `${project}/database/rotate`)
          return one.status === 200 && one.body.connectionString !== null && one.body
        })
        const databaseId = String((await plane.call("GET", `${project}/database`)).body.id)
        const dataDir = path.join(folder, "data")
        const world: BranchPlane = {
          plane,
          dataDir,
          databaseId,
          databaseUrl: String(rotated.connectionString),
          base: `${project}/databases/${databaseId}/branches`,
          ca: String((await plane.call("GET", "/v1/ca.pem")).body),
          folderOf: (uid) => path.join(dataDir, "databases", uid)
        }
        const points = `${project}/databases/${databaseId}/recovery-points`
        await until(
          "the first backup",
          async () => (await plane.call("GET", points)).body.windows.length > 0,
          120
        )
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
        await until(
          "the backup and the log before it are in the object store",
          async () => {
            const { body } = await plane.call("GET", backups)
            const one = body.find(({ id }: { id: string }) => id === asked.body.id)
            if (
              one.locations.some(
                (it: { kind: string; complete: boolean }) => it.kind !== "local" && it.complete
              )
            )
              return true
            throw new Error(JSON.stringify(one))
          },
          120
        )

        const own = processesNaming(world.folderOf(databaseId)).filter(({ line }) => / -D /.test(line))
        for (const { pid } of own) process.kill(pid, "SIGKILL")
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
        const held = await until(
          "the database answers again",
          () => query(world, world.databaseUrl, "select n from ledger order by n"),
          120
        )
        assert.deepStrictEqual(held, [1, 2], "what was committed before the moment, and nothing else")
        assert.isTrue(
          far.requests
            .slice(before)
            .some(({ method, url }) => method === "GET" && url.includes("x-id=GetObject")),
          "it was read from there"
        )
      })
    }).pipe(Effect.scoped),
  300_000
)
