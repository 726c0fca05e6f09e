import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { type Recovery, Repository } from "#src/backups/repository/Repository.ts"
import { Host } from "#src/infra/host/Host.ts"
import type { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { recover } from "#src/infra/postgres/recovery.ts"
import { folderOf } from "#test/setup/databases.ts"
import { killNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  type BackupWorld,
  backupWorld,
  connect,
  destination,
  onStore,
  portOf,
  readyDatabase,
  startLoops
} from "./world.ts"

const aBackup = (world: BackupWorld, uid: string) =>
  eventually(
    "a backup of the database",
    Effect.map(
      onStore(world, `select * from backup_job where database_uid = '${uid}' order by created_at desc`),
      ([job]) => {
        if (job?.status === "failed") throw new Error(String(job?.error))
        return job?.status === "succeeded" && job
      }
    )
  )

const chownAll = (folder: string, uid: number, gid: number) => {
  fs.chownSync(folder, uid, gid)
  for (const entry of fs.readdirSync(folder, { withFileTypes: true, recursive: true })) {
    fs.chownSync(path.join(entry.parentPath, entry.name), uid, gid)
  }
}

/** What a ledger holds after a recovery: numbers, in their order. */
const recovered = Effect.fnUntraced(function* (world: BackupWorld, recovery: Recovery, name: string) {
  const repository = yield* Repository
  const host = yield* Host
  const scratch = path.join(world.dataDir, "scratch", name)
  const [data, log] = [path.join(scratch, "data"), path.join(scratch, "log")]
  fs.mkdirSync(data, { recursive: true, mode: 0o700 })
  fs.mkdirSync(log, { recursive: true, mode: 0o700 })
  const seen: Array<number> = []
  yield* repository.fetchBase(recovery, data, (done, total) => seen.push(done / total))
  yield* repository.fetchWal(recovery, log, () => {})
  assert.strictEqual(seen.at(-1), 1)
  fs.writeFileSync(path.join(data, "backup_label"), recovery.backup.label)
  if (host.runAs !== undefined) chownAll(path.join(world.dataDir, "scratch"), host.runAs.uid, host.runAs.gid)
  let numbers: ReadonlyArray<number> = []
  yield* recover({
    durable: false,
    data,
    log,
    scratch,
    key: name,
    ...(recovery.target === undefined ? {} : { before: recovery.target }),
    whileOpen: ({ socketDir, port }) =>
      Effect.promise(async () => {
        const sql = connect(world, port, socketDir)
        numbers = (await sql`select n from ledger order by n`).map(({ n }) => Number(n))
        await sql.end()
      })
  })
  fs.rmSync(scratch, { recursive: true, force: true })
  return numbers
})

describe("backups", { timeout: 900_000 }, () => {
  it.live(
    "a moment that is restored holds exactly what was committed before it, from here and from a bucket alone",
    () =>
      Effect.scoped(
        Effect.gen(function* () {
          const world = yield* backupWorld
          const bucket = destination(world)
          const database = yield* readyDatabase(world, { destinationIds: [bucket.id] })
          // Before the first backup begins, which is restored as well.
          yield* Effect.promise(async () => {
            const sql = connect(world, portOf(world, database))
            await sql`create table ledger (n int primary key, at timestamptz default clock_timestamp())`
            await sql.end()
          })
          const { context } = yield* startLoops(world)
          const repository = Context.get(context, Repository)
          const ref = { orgId: database.orgId, lineage: database.uid }
          yield* aBackup(world, database.uid)

          // A writer that goes on all the time, and remembers when each commit was acknowledged.
          const sql = connect(world, portOf(world, database))
          const commits: Array<{ readonly n: number; readonly before: number; readonly after: number }> = []
          let writing = true
          const writer = (async () => {
            for (let n = 1; writing; n++) {
              const before = Date.now()
              await sql`insert into ledger (n) values (${n})`
              commits.push({ n, before, after: Date.now() })
            }
          })()
          const written = Effect.sync(() => commits.length)
          yield* eventually("there are commits to tell moments apart by", written, (count) => count > 300)
          const at = new Date()
          const before = commits.length
          yield* eventually("it has gone on", written, (count) => count > before + 100)
          writing = false
          yield* Effect.promise(() => writer)
          const end = yield* repository.flush(database.orgId, database.uid)
          yield* Effect.promise(() => sql.end())

          const certain = (moment: Date) => commits.filter(({ after }) => after < +moment).length
          const possible = (moment: Date) => commits.filter(({ before }) => before <= +moment).length
          const check = (moment: Date, numbers: ReadonlyArray<number>) => {
            assert.deepStrictEqual(
              numbers,
              numbers.map((_, index) => index + 1),
              "a prefix of what was written"
            )
            assert.isAtLeast(numbers.length, certain(moment))
            assert.isAtMost(numbers.length, possible(moment))
          }
          const inside = <A, E>(self: Effect.Effect<A, E, Repository | Host | PostgresBinaries>) =>
            Effect.provide(self, context)

          for (const [index, moment] of [at, end].entries()) {
            const recovery = yield* repository.choose(ref, { kind: "time", at: moment })
            check(moment, yield* inside(recovered(world, recovery, `l${index}`)))
          }

          // The database's folder and the repository here are gone.
          yield* eventually(
            "every object has its copy",
            Effect.map(
              onStore(world, "select count(*)::int as left from backup_copy where stored_at is null"),
              ([row]) => row?.left === 0
            )
          )
          killNaming(database.uid)
          fs.rmSync(folderOf(world, database), { recursive: true, force: true, maxRetries: 20 })
          fs.rmSync(path.join(world.dataDir, "backups"), { recursive: true, force: true, maxRetries: 20 })
          const recovery = yield* repository.choose(ref, { kind: "time", at })
          check(at, yield* inside(recovered(world, recovery, "remote")))
          const backup = yield* repository.choose(ref, { kind: "backup", backupId: recovery.backup.id })
          assert.deepStrictEqual(yield* inside(recovered(world, backup, "base")), [])

          const outside = yield* Effect.flip(
            repository.choose(ref, { kind: "time", at: new Date(Date.now() + 3_600_000) })
          )
          assert.strictEqual(outside._tag, "OutsideWindow")
          if (outside._tag === "OutsideWindow") assert.lengthOf(outside.windows, 1)
        })
      )
  )
})
