import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { makeBase } from "#src/backups/base.ts"
import { type ClaimedJob, Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { backupWorld, onStore, readyDatabase, startLoops } from "./world.ts"

describe("attempts at a backup", { timeout: 600_000 }, () => {
  it.live(
    "are not mixed: one that lost its lease records nothing more, and takes away nothing of the next",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          const database = yield* readyDatabase(world)
          const { context } = yield* startLoops(world, { jobs: 0 })
          const [jobs, ledger] = [Context.get(context, Jobs), Context.get(context, Ledger)]
          yield* jobs.queue({
            orgId: database.orgId,
            kind: "backup",
            databaseUid: database.uid,
            lineage: database.uid,
            backupId: null,
            reason: "request"
          })
          const claim = Effect.gen(function* () {
            yield* onStore(world, "update backup_job set due_at = now()")
            const [job] = yield* jobs.claim(1, 300)
            return job ?? (yield* Effect.die("nothing to claim"))
          })
          const baseWith = (over: Partial<Ledger["Service"]>) =>
            Effect.provideContext(makeBase, Context.add(context, Ledger, Ledger.of({ ...ledger, ...over })))
          const second = yield* baseWith({})
          let taken: ClaimedJob | undefined
          const first = yield* baseWith({
            // A pause of the process, long enough for another one to make the whole backup.
            add: (ref, objects, destinationIds, attempt) =>
              Effect.gen(function* () {
                if (taken === undefined) {
                  taken = yield* claim
                  const result = yield* Effect.orDie(second.run(taken, [], () => {}))
                  yield* jobs.succeed(taken, result)
                }
                return yield* ledger.add(ref, objects, destinationIds, attempt)
              })
          })
          const job = yield* claim
          const failed = yield* Effect.flip(first.run(job, [], () => {}))
          assert.match(failed.message, /Another process makes the backup/)
          yield* first.clear(job)
          const rows = yield* onStore(world, "select key from backup_object where backup_id is not null")
          assert.isAbove(rows.length, 0)
          for (const { key } of rows)
            assert.isTrue(fs.existsSync(path.join(world.dataDir, "backups", String(key))))
          const [ended] = yield* onStore(world, "select status from backup_job")
          assert.strictEqual(ended?.["status"], "succeeded")
          // Nor does whoever cleans up after backups that failed.
          yield* first.clear({ ...job, token: null })
          assert.lengthOf(
            yield* onStore(world, "select key from backup_object where backup_id is not null"),
            rows.length
          )
          yield* onStore(world, "update backup_job set status = 'failed'")
          yield* first.clear({ ...job, token: null })
          assert.lengthOf(
            yield* onStore(world, "select key from backup_object where backup_id is not null"),
            0
          )
          const left = fs.readdirSync(path.join(world.dataDir, "backups"), { recursive: true })
          assert.isFalse(left.some((name) => String(name).includes(`base/${job.id}/`)))
        })
      )
  )

  it.live("at a history that the database has no more are given up at once, and keep out no other", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* backupWorld
        const database = yield* readyDatabase(world)
        yield* onStore(
          world,
          `insert into backup_job (org_id, id, kind, database_uid, lineage, reason)
             values ('${database.orgId}', '${uuid()}', 'backup', '${database.uid}', '${uuid()}', 'gap')`
        )
        yield* startLoops(world)
        const [good] = yield* eventually(
          "a backup of what is there",
          Effect.map(
            onStore(world, "select lineage from backup_job where status = 'succeeded'"),
            (rows) => rows.length > 0 && rows
          )
        )
        assert.strictEqual(good?.["lineage"], database.uid)
        const [old] = yield* onStore(
          world,
          "select status, attempt, error from backup_job where reason = 'gap'"
        )
        assert.deepStrictEqual([old?.["status"], old?.["attempt"]], ["failed", 1])
        assert.match(String(old?.["error"]), /was replaced/)
      })
    )
  )
})
