/** A disk that becomes full in the middle of a copy. It is a file system of its own, which only root can mount. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { DatabaseBranchStatus } from "#schemas/database-branch.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { HydrationHook, Hydrations } from "#src/infra/postgres/Hydrations.ts"
import { look } from "#test/reconcilers/settle.ts"
import { asServer, branchReconciler, branchWorldIn, makeBranch, settleBranch } from "#test/setup/branches.ts"
import {
  asApplication,
  databaseServices,
  databaseWorld,
  folderOf,
  settleDatabase
} from "#test/setup/databases.ts"

const isRoot = process.getuid?.() === 0

const smallDisk = Effect.gen(function* () {
  const world = yield* databaseWorld
  const folder = path.join(world.dataDir, "databases")
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      fs.mkdirSync(folder, { recursive: true })
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=700m,mode=0755", "tmpfs", folder])
    }),
    // Servers that are still there end with the world.
    () => Effect.sync(() => execFileSync("umount", ["-l", folder]))
  )
  return yield* branchWorldIn(world)
})

it.live.skipIf(!isRoot)(
  "a disk that becomes full fails the copy with that reason, leaves nothing and harms nobody; with room it goes on",
  () =>
    Effect.gen(function* () {
      const world = yield* smallDisk
      const filler = path.join(world.dataDir, "databases", "filler")
      const fill = Effect.sync(() => {
        const { bavail, bsize } = fs.statfsSync(path.dirname(filler))
        // Room for a part of the copy.
        fs.writeFileSync(filler, Buffer.alloc(Math.max(0, bavail * bsize - 12 * 1_048_576)))
      })
      const resource = makeBranch(world)
      const failed = yield* Effect.gen(function* () {
        const { reconciler } = (yield* Registry).registrations.get("DatabaseBranch")!
        const run = { ...resource, fence: 50n }
        for (;;) {
          const seen = yield* look(reconciler, run)
          const status = seen._tag === "Present" ? (seen.status as DatabaseBranchStatus) : undefined
          if (status?.failure != null) return status
          if (seen._tag === "Absent" || seen.differences.length > 0) yield* reconciler.converge(run, seen)
          yield* Effect.sleep("50 millis")
        }
      }).pipe(
        Effect.provideService(HydrationHook, (step) => (step === "copy" ? fill : Effect.void)),
        Effect.provide(branchReconciler(world), { local: true }),
        Effect.timeout("5 minutes")
      )
      assert.deepStrictEqual([failed.failure?.code, failed.failure?.step], ["no_space", "copy"])
      assert.deepStrictEqual(
        fs
          .readdirSync(folderOf(world, { uid: resource.uid }))
          .filter((name) => name.startsWith("hydrating-")),
        []
      )
      fs.rmSync(filler)
      yield* settleDatabase(world, { ...world.source, fence: 51n })
      yield* asApplication(world, world.source, (sql) => sql`insert into ledger values (1001)`)

      // Somebody asks again.
      yield* Effect.flatMap(Hydrations, (hydrations) =>
        hydrations.told({ uid: resource.uid, fence: 52n })
      ).pipe(Effect.provide(Hydrations.layer), Effect.provide(databaseServices(world), { local: true }))
      yield* settleBranch(world, { ...resource, fence: 53n, status: failed })
      const [row] = yield* asApplication(
        world,
        asServer(world, resource),
        (sql) => sql`select count(*)::int as n from ledger`
      )
      assert.strictEqual(row?.["n"], 1_001)
    }).pipe(Effect.scoped),
  900_000
)
