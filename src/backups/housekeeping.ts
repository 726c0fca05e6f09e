/** Removes what nobody promised to keep: backups whose time has passed, deleted databases, debris. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { numberOf } from "./archive/log.ts"
import { WalRanges } from "./archive/WalRanges.ts"
import type { ManagedDatabase } from "./Databases.ts"
import { Jobs } from "./Jobs.ts"
import { Ledger, type LineageRef } from "./Ledger.ts"
import { BackupOptions } from "./options.ts"
import { baseOf, Repository } from "./repository/Repository.ts"
import { isKept, kept } from "./retention.ts"

const batch = 1_000

export const makeHousekeeping = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const ledger = yield* Ledger
  const ranges = yield* WalRanges
  const jobs = yield* Jobs
  const repository = yield* Repository
  const { dataDir } = yield* AppConfig
  const options = yield* BackupOptions
  const root = path.join(dataDir, "backups")

  const lineages = repeatable(sql<LineageRef & { readonly databaseUid: string }>`
    select org_id as "orgId", lineage, database_uid as "databaseUid" from backup_lineage`)
  // Index: resource_databases.
  const gone = repeatable(sql<LineageRef>`
    select l.org_id as "orgId", l.lineage from backup_lineage l
    where not exists (select from resource r where r.org_id = l.org_id and r.uid = l.database_uid
      and r.kind = 'Database' and r.deleted_at is null)`)

  /** What was kept of one history, in the store first: what has no row is debris and goes with the next look. */
  const prune = Effect.fn("backups.prune")(function* (ref: LineageRef, database: ManagedDatabase) {
    const records = yield* jobs.bases(ref.orgId, ref.lineage)
    const bases = records.flatMap(baseOf)
    const current = database.lineage === ref.lineage
    const now = new Date(yield* Clock.currentTimeMillis)
    if (bases.length === 0) {
      if (!current) yield* forget(ref)
      return
    }
    const until = (yield* ranges.writtenUntil(ref)) ?? new Date(0)
    const keep = kept(bases, database.policy, now, current, until)
    for (const { id } of bases.filter((base) => !keep.bases.has(base.id))) {
      const keys = yield* ledger.removeBackup(ref, id)
      yield* repeatable(sql`delete from backup_job where org_id = ${ref.orgId}::uuid and id = ${id}::uuid`)
      yield* repository.local.remove(keys)
    }
    // What may go lies before the first place of the log that is kept as a whole.
    const before = bases
      .find(({ startSegment }) => numberOf(startSegment) === keep.from)
      ?.startSegment.slice(8)
    for (let after: string | undefined = ""; after !== undefined; ) {
      const page: ReadonlyArray<string> = yield* ranges.page(ref, { after, before, most: batch })
      after = page.at(-1)
      const old = page.filter((name) => !isKept(keep, name)).map((name) => `wal/${name}`)
      if (old.length > 0) yield* repository.local.remove(yield* ledger.removeObjects(ref, old))
    }
    if (!current && keep.bases.size === 0) yield* forget(ref)
  })

  /** Without its key whatever may stay at a destination is noise. */
  const forget = Effect.fnUntraced(function* (ref: LineageRef) {
    yield* ledger.forget(ref)
    yield* Effect.promise(() => fs.rm(path.join(root, ref.lineage), { recursive: true, force: true }))
  })

  return {
    retention: Effect.fnUntraced(function* (databases: ReadonlyArray<ManagedDatabase>) {
      const byUid = new Map(databases.map((one) => [one.uid, one]))
      for (const ref of yield* lineages) {
        const database = byUid.get(ref.databaseUid)
        if (database !== undefined) yield* prune(ref, database)
      }
      yield* jobs.tidy
    }),
    /** Databases that are gone take their backups along. */
    departed: Effect.gen(function* () {
      for (const ref of yield* gone) yield* forget(ref)
    }),
    /** Objects without a row, and what was never finished. */
    debris: Effect.gen(function* () {
      const before = (yield* Clock.currentTimeMillis) - options.debrisAfterMs
      const known = new Set((yield* lineages).map(({ lineage }) => lineage))
      const folders = yield* Effect.promise(() => fs.readdir(root).catch(() => []))
      for (const lineage of folders) {
        const old = yield* Effect.promise(() => filesBefore(path.join(root, lineage), before))
        if (old.length === 0) continue
        const keys = old.map((file) => path.relative(root, file))
        const rows = known.has(lineage) ? yield* ledger.keysOf(lineage) : new Set<string>()
        for (const key of keys) {
          if (!rows.has(key)) yield* Effect.promise(() => fs.rm(path.join(root, key), { force: true }))
        }
      }
    })
  }
})

const filesBefore = async (folder: string, before: number): Promise<ReadonlyArray<string>> => {
  const found: Array<string> = []
  const entries = await fs.readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])
  for (const entry of entries) {
    if (!entry.isFile()) continue
    const file = path.join(entry.parentPath, entry.name)
    const stat = await fs.stat(file).catch(() => undefined)
    if (stat !== undefined && stat.mtimeMs < before) found.push(file)
  }
  return found
}
