import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Ledger } from "#src/backups/Ledger.ts"
import { type Place, PlaceError } from "#src/backups/repository/Place.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import type { DatabaseResource } from "#test/setup/databases.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  type BackupWorld,
  backupWorld,
  connect,
  destination,
  onStore,
  portOf,
  readyDatabase,
  startLoops,
  unrecorded
} from "./world.ts"

const succeeded = (world: BackupWorld, count = 1) =>
  eventually(
    `${count} backups`,
    Effect.map(
      onStore(
        world,
        "select id from backup_job where kind = 'backup' and status = 'succeeded' order by finished_at"
      ),
      (rows) => rows.length >= count && rows.map(({ id }) => String(id))
    )
  )
const count = (world: BackupWorld, from: string) =>
  Effect.map(onStore(world, `select count(*)::int as n from ${from}`), ([row]) => Number(row?.n))
const events = (world: BackupWorld) =>
  Effect.map(onStore(world, "select type, reason from resource_event order by id"), (rows) =>
    rows.map(({ type, reason }) => `${type} ${reason}`)
  )
const statement = (world: BackupWorld, database: DatabaseResource, text: string) =>
  Effect.promise(async () => {
    const sql = connect(world, portOf(world, database))
    try {
      return [...(await sql.unsafe(text))]
    } finally {
      await sql.end()
    }
  })
const keysIn = (dir: string) =>
  fs.existsSync(dir)
    ? fs.readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length
    : 0

describe("trouble with backups", { timeout: 900_000 }, () => {
  it.live(
    "a destination that fails holds up nothing; damage is not spread; a deleted database takes its backups along",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          const bad = destination(world)
          const good = destination(world)
          const real = world.destinations.get(bad.id)
          if (real === undefined) throw new Error("no destination")
          const broken: Place = {
            ...real,
            put: () =>
              Effect.fail(new PlaceError({ reason: "unreachable", message: "The bucket cannot be reached" }))
          }
          world.destinations.set(bad.id, broken)
          const database = yield* readyDatabase(world, { destinationIds: [bad.id, good.id] })
          const ref = { orgId: database.orgId, lineage: database.uid }
          const { context } = yield* startLoops(world, { removalTries: 1 })
          const ledger = Context.get(context, Ledger)
          const trouble = yield* eventually(
            "the trouble is told",
            Effect.map(ledger.trouble(ref), Option.getOrUndefined)
          )
          assert.deepStrictEqual(trouble, {
            reason: "DestinationFailing",
            message: "Backups do not reach a destination: The bucket cannot be reached"
          })
          yield* eventually(
            "the other destination has everything",
            Effect.map(
              count(world, `backup_copy where destination_id = '${good.id}' and stored_at is null`),
              (n) => n === 0
            )
          )
          const [backupId = ""] = yield* succeeded(world)
          assert.strictEqual(keysIn(bad.dir), 0)

          // Once it works again it gets everything.
          world.destinations.set(bad.id, real)
          // It was left alone for ever longer, the longer it took until here.
          const atOnce = onStore(
            world,
            `update backup_destination_pause set due_at = now() where due_at > now();
             update backup_copy set due_at = now() where due_at > now() and lease is null`
          )
          yield* eventually(
            "the trouble is over",
            Effect.andThen(atOnce, Effect.map(ledger.trouble(ref), Option.isNone))
          )
          yield* eventually(
            "both have the same",
            Effect.map(
              Effect.andThen(atOnce, count(world, "backup_copy where stored_at is null")),
              (n) => n === 0 && keysIn(bad.dir) === keysIn(good.dir)
            )
          )
          assert.deepStrictEqual(yield* events(world), [
            "Warning DestinationFailing",
            "Normal ArchivingWorks"
          ])

          // What was damaged here is read from a destination.
          const repository = Context.get(context, Repository)
          const [part] = yield* onStore(
            world,
            `select key from backup_object where backup_id = '${backupId}'`
          )
          const key = String(part?.["key"])
          const file = path.join(world.dataDir, "backups", key)
          const content = fs.readFileSync(file)
          content[content.length >> 1] = (content[content.length >> 1] ?? 0) ^ 1
          fs.writeFileSync(file, content)
          const recovery = yield* repository.choose(ref, { kind: "backup", backupId })
          const into = path.join(world.dataDir, "into")
          fs.mkdirSync(into)
          yield* repository.fetchBase(recovery, into, () => {})
          assert.isTrue(fs.existsSync(path.join(into, "global", "pg_control")))

          // Without a copy the damage is told, and nothing is called whole.
          for (const { dir } of [good, bad]) fs.rmSync(path.join(dir, key))
          yield* onStore(
            world,
            `update backup_copy set stored_at = null, version = null, due_at = now() where key = '${key}'`
          )
          const failed = yield* Effect.flip(repository.fetchBase(recovery, into, () => {}))
          assert.match(failed.message, /cannot be read from anywhere/)
          yield* eventually(
            "the damage is noticed as it is copied",
            Effect.map(count(world, "backup_copy where error like '%damaged%'"), (n) => n === 2)
          )
          for (const { dir } of [good, bad]) assert.isFalse(fs.existsSync(path.join(dir, key)))

          // The database is deleted, and one destination refuses: that one is given up.
          world.destinations.set(bad.id, {
            ...real,
            remove: () =>
              Effect.fail(new PlaceError({ reason: "delete", message: "Deleting is not allowed" }))
          })
          yield* onStore(
            world,
            `update resource set deleted_at = now(), deletion_requested_at = now() where uid = '${database.uid}'`
          )
          for (const table of ["backup_lineage", "backup_object", "backup_job", "backup_copy"]) {
            yield* eventually(
              `nothing in ${table}`,
              Effect.map(count(world, table), (n) => n === 0)
            )
          }
          yield* eventually(
            "no files here",
            Effect.sync(() => keysIn(path.join(world.dataDir, "backups")) === 0)
          )
          yield* eventually(
            "nothing at the destination",
            Effect.sync(() => keysIn(good.dir) === 0)
          )
          // What stays is noise: its key is gone.
          assert.isAbove(keysIn(bad.dir), 0)
        })
      )
  )

  campaign(
    it.live,
    "backup-disk-full",
    "with a full disk a backup fails with that reason and leaves nothing; with room again it is made",
    { rounds: 0 },
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          yield* readyDatabase(world)
          const dir = path.join(world.dataDir, "backups")
          fs.mkdirSync(dir)
          yield* Effect.acquireRelease(
            Effect.sync(() => execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", dir])),
            () => Effect.sync(() => execFileSync("umount", ["-l", dir]))
          )
          yield* startLoops(world)
          const failed = yield* eventually(
            "the backup fails",
            Effect.map(
              onStore(world, "select status, error from backup_job where status = 'failed'"),
              ([job]) => job
            )
          )
          assert.match(String(failed["error"]), /the disk is full \(ENOSPC\)/)
          assert.notInclude(String(failed["error"]), world.dataDir)
          yield* eventually(
            "nothing is left of it",
            Effect.map(
              onStore(world, "select count(*)::int as n from backup_object where name like 'base/%'"),
              ([row]) => row?.["n"] === 0
            )
          )
          yield* eventually(
            "no parts are left",
            Effect.sync(
              () => !fs.readdirSync(dir, { recursive: true }).some((name) => String(name).includes("/base/"))
            )
          )
          execFileSync("mount", ["-o", "remount,size=500m", dir])
          yield* onStore(world, "update backup_job set finished_at = finished_at - interval '2 hours'")
          yield* succeeded(world)
        })
      )
  )

  campaign(
    it.live,
    "backup-no-room",
    "an orderly stop gives a backup to the next process at once; without room segments are given up, and another backup ends the gap",
    { rounds: 0 },
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          const database = yield* readyDatabase(world)
          const ref = { orgId: database.orgId, lineage: database.uid }
          // A lease that nobody waits for in this test, and a backup that does not end before the stop.
          const end = yield* unrecorded(world)
          const first = yield* startLoops(world, { leaseSeconds: 3_600 })
          yield* eventually(
            "it is begun",
            Effect.map(count(world, "backup_job where status = 'running'"), (n) => n === 1)
          )
          yield* Effect.all([first.stop, end], { concurrency: 2 })
          // Two processes make one backup.
          const others = yield* Effect.all([startLoops(world), startLoops(world)])
          yield* succeeded(world)
          assert.strictEqual(yield* count(world, "backup_job"), 1)
          yield* Effect.forEach(others, ({ stop }) => stop)
          assert.strictEqual(
            yield* count(
              world,
              "(select distinct backup_id from backup_object where backup_id is not null) b"
            ),
            1
          )

          // The oldest segments are given up: the database goes on, and the gap is shown.
          const tight = yield* startLoops(world, { reserveBytes: Number.MAX_SAFE_INTEGER, jobs: 0 })
          const ledger = Context.get(tight.context, Ledger)
          yield* statement(world, database, "create table lost (n int)")
          yield* statement(world, database, "select pg_switch_wal()")
          const trouble = yield* eventually(
            "it is told",
            Effect.map(ledger.trouble(ref), Option.getOrUndefined)
          )
          assert.strictEqual(trouble.reason, "ArchivingFailing")
          assert.match(trouble.message, /disk is full/)
          yield* eventually(
            "another backup is asked for",
            Effect.map(count(world, "backup_job where reason = 'gap'"), (n) => n === 1)
          )
          yield* statement(world, database, "insert into lost values (1)")
          yield* tight.stop

          const { context } = yield* startLoops(world)
          yield* succeeded(world, 2)
          yield* eventually(
            "the trouble is over",
            Effect.map(Context.get(context, Ledger).trouble(ref), Option.isNone)
          )
          const windows = yield* Context.get(context, Repository).windows(ref)
          assert.lengthOf(windows, 2)
          assert.isBelow(+(windows[0]?.to ?? 0), +(windows[1]?.from ?? 0))
        })
      )
  )
})
