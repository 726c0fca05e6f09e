import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { Jobs, mostAttempts } from "#src/backups/Jobs.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { type DatabaseResource, folderOf } from "#test/setup/databases.ts"
import { killNaming, processesNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  type BackupWorld,
  backupWorld,
  connect,
  onStore,
  portOf,
  readyDatabase,
  settle,
  startLoops,
  unrecorded
} from "./world.ts"

const jobs = (world: BackupWorld, condition = "true") =>
  onStore(world, `select * from backup_job where ${condition} order by created_at desc, id desc`)
const ended = (world: BackupWorld, what: string, condition: string) =>
  eventually(
    what,
    Effect.map(jobs(world, condition), ([job]) => job !== undefined && job["finished_at"] !== null && job)
  )
const fill = (world: BackupWorld, database: DatabaseResource, megabytes: number) =>
  Effect.promise(async () => {
    const sql = connect(world, portOf(world, database))
    await sql.unsafe(
      // Pages that nobody vacuums stay as they were written, with what a test does to them on the disk.
      `create table big with (autovacuum_enabled = off) as
         select n, repeat(md5(n::text), 30) as text from generate_series(1, ${megabytes * 1000}) n`
    )
    await sql.end()
  })

/** Files of the repository that no row knows, and rows that no file stands for. */
const differences = (world: BackupWorld) =>
  Effect.map(onStore(world, "select key from backup_object"), (rows) => {
    const known = new Set(rows.map(({ key }) => String(key)))
    const root = path.join(world.dataDir, "backups")
    const there = fs.existsSync(root)
      ? fs
          .readdirSync(root, { withFileTypes: true, recursive: true })
          .filter((entry) => entry.isFile())
          .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
      : []
    return [
      ...there.filter((key) => !known.has(key)).map((key) => `debris ${key}`),
      ...[...known].filter((key) => !there.includes(key)).map((key) => `missing ${key}`)
    ]
  })

const loopsProcess = (world: BackupWorld) =>
  Effect.promise(
    () =>
      new Promise<ChildProcess>((resolve, reject) => {
        const script = path.join(import.meta.dirname, "loops-process.ts")
        const child = spawn(process.execPath, [script, world.dataDir, Redacted.value(world.storeUrl)], {
          stdio: ["ignore", "pipe", "inherit"]
        })
        child.once("error", reject)
        child.once("exit", (code) => reject(new Error(`the loops ended with ${code}`)))
        child.stdout.once("data", () => resolve(child))
      })
  )

describe("backups and drills", { timeout: 1_200_000 }, () => {
  it.live(
    "a server that is killed fails the attempt at its backup; the next is proved by a drill, which leaves nothing",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          const database = yield* readyDatabase(world)
          yield* fill(world, database, 5)
          // It does not come to its end before the server is killed.
          const end = yield* unrecorded(world)
          const { context } = yield* startLoops(world, { retrySeconds: 0.5 })
          yield* eventually(
            "some of it is copied",
            Effect.map(jobs(world), ([job]) => job?.["step"] === "copying")
          )
          killNaming(database.uid)
          yield* end
          yield* eventually(
            "the attempt failed",
            Effect.map(jobs(world), ([job]) => job?.["error"] !== null)
          )
          yield* settle(world, database)
          const backup = yield* ended(world, "the next attempt", "kind = 'backup' and status = 'succeeded'")
          assert.isNull(backup["error"])
          yield* eventually(
            "no debris",
            Effect.map(differences(world), (found) => found.length === 0)
          )
          assert.strictEqual(backup["reason"], "first")
          assert.strictEqual(backup["status"], "succeeded", String(backup["error"]))
          assert.isNull(backup["proven_at"])
          assert.strictEqual(backup["bytes_done"], backup["bytes_total"])
          const queue = Context.get(context, Jobs).queue({
            orgId: database.orgId,
            kind: "drill",
            databaseUid: database.uid,
            lineage: database.uid,
            backupId: String(backup["id"]),
            reason: "request"
          })
          yield* queue
          // Asked for twice it is made once.
          yield* queue
          const drill = yield* ended(world, "the drill", "kind = 'drill'")
          assert.strictEqual(drill["status"], "succeeded", String(drill["error"]))
          assert.lengthOf(yield* jobs(world, "kind = 'drill'"), 1)
          const [proven] = yield* jobs(world, "kind = 'backup'")
          assert.isNotNull(proven?.["proven_at"])
          assert.deepStrictEqual(fs.readdirSync(path.join(world.dataDir, "drills")), [])
          assert.deepStrictEqual(processesNaming(String(drill["id"])), [])

          // A page that the disk damaged: the backup is faithful, so the drill finds it there.
          const file = yield* Effect.promise(async () => {
            const sql = connect(world, portOf(world, database))
            const [row] = await sql`select pg_relation_filepath('big') as file`
            await sql`checkpoint`
            await sql.end()
            return path.join(folderOf(world, database), "data", String(row?.["file"]))
          })
          const handle = fs.openSync(file, "r+")
          fs.writeSync(handle, Buffer.from("damage"), 0, 6, 3 * 8_192 + 4_000)
          fs.closeSync(handle)
          yield* Context.get(context, Jobs).queue({
            orgId: database.orgId,
            kind: "backup",
            databaseUid: database.uid,
            lineage: database.uid,
            backupId: null,
            reason: "request",
            drill: true
          })
          // It does not get better by being tried again.
          const last = onStore(
            world,
            `update backup_job set attempt = greatest(attempt, ${mostAttempts - 1})
             where kind = 'drill' and id <> '${drill["id"]}' returning id`
          )
          yield* eventually("the drill is asked for", last, (rows) => rows.length > 0)
          const bad = yield* ended(
            world,
            "the drill of the damaged backup",
            `kind = 'drill' and id <> '${drill["id"]}'`
          )
          assert.strictEqual(bad["status"], "failed")
          assert.match(String(bad["error"]), /damaged page \(base\/\d+\/\d+: page 3\)/)
          // A segment of the log may be just on its way.
          yield* eventually(
            "nothing is left, and nothing is missing",
            Effect.map(differences(world), (found) => found.length === 0)
          )
        })
      )
  )

  campaign(
    it.live,
    "backup-kills",
    "a process that is killed at any moment of a backup leaves no debris, and another one makes it",
    { roundMs: 1_200_000, rounds: 0 },
    Effect.fnUntraced(function* ({ seed }) {
      const random = new Seeded(seed)
      const kills = random.int(2, 6)
      const world = yield* backupWorld
      const database = yield* readyDatabase(world)
      yield* fill(world, database, 40)
      for (let kill = 1; kill <= kills; kill++) {
        const child = yield* loopsProcess(world)
        yield* eventually(
          "the backup goes on",
          Effect.map(
            jobs(world, "kind = 'backup' and finished_at is null"),
            ([job]) => job?.["status"] === "running"
          )
        ).pipe(Effect.timeoutOption("4 seconds"))
        yield* Effect.sleep(random.between(0, 700))
        child.kill("SIGKILL")
        yield* Effect.promise(() => new Promise((resolve) => child.once("close", resolve)))
        // A killed process is no fault of the backup.
        yield* onStore(world, "update backup_job set attempt = 0, due_at = now() where finished_at is null")
        if (kill === kills) {
          yield* onStore(
            world,
            "update backup_job set status = 'queued', finished_at = null, due_at = now() where status = 'succeeded'"
          )
        }
      }
      const { context } = yield* startLoops(world, { tidyMs: 500 })
      const backup = yield* ended(world, "the backup", "kind = 'backup'")
      assert.strictEqual(backup["status"], "succeeded", String(backup["error"]))
      yield* Context.get(context, Jobs).queue({
        orgId: database.orgId,
        kind: "drill",
        databaseUid: database.uid,
        lineage: database.uid,
        backupId: String(backup["id"]),
        reason: "request"
      })
      const drill = yield* ended(world, "the drill", "kind = 'drill'")
      assert.strictEqual(drill["status"], "succeeded", String(drill["error"]))
      yield* eventually(
        "no debris",
        Effect.map(differences(world), (found) => found.length === 0)
      )
    })
  )
})
