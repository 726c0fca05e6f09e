/** Which databases are due for a base backup or a drill. */
import { createHash } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Db, repeatable } from "#src/store/Db.ts"
import { timelineOf } from "./archive/log.ts"
import type { ManagedDatabase } from "./Databases.ts"
import { Jobs } from "./Jobs.ts"
import { BackupOptions } from "./options.ts"

/** After a job that failed for good. */
const pauseMs = 3_600_000

interface State {
  readonly uid: string
  readonly newest: Date | null
  readonly newestId: string | null
  readonly timeline: number | null
  readonly backupFailed: Date | null
  readonly drilled: Date | null
  readonly drillFailed: Date | null
  readonly openBackup: boolean
  readonly openDrill: boolean
  /** A backup that was asked for with its proof, which nobody has begun. */
  readonly toProve: string | null
  /** The newest segment, whose name tells the timeline that the server is on. */
  readonly segment: string | null
  /** Destinations that have no whole base backup of this history, nor will. */
  readonly missing: boolean
}

export const makeSchedule = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const jobs = yield* Jobs
  const options = yield* BackupOptions

  const states = (databases: ReadonlyArray<ManagedDatabase>) =>
    repeatable(sql<State>`
      select d.uid, b.consistent_at as newest, b.id as "newestId", b.timeline,
        (select max(finished_at) from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid
          and j.lineage = d.lineage and kind = 'backup' and status = 'failed') as "backupFailed",
        (select max(finished_at) from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid
          and kind = 'drill' and status = 'succeeded') as drilled,
        (select max(finished_at) from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid
          and kind = 'drill' and status = 'failed') as "drillFailed",
        exists (select from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid
          and j.lineage = d.lineage and kind = 'backup' and finished_at is null) as "openBackup",
        exists (select from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid
          and j.lineage = d.lineage and kind = 'drill' and finished_at is null) as "openDrill",
        (select j.id from backup_job j where j.org_id = d."orgId" and j.database_uid = d.uid and j.lineage = d.lineage
          and kind = 'backup' and status = 'succeeded' and j.drill and not exists (select from backup_job p
            where p.org_id = j.org_id and p.database_uid = j.database_uid and p.kind = 'drill' and p.backup_id = j.id)
          order by consistent_at desc limit 1) as "toProve",
        (select substr(max(name), 5) from backup_object o where o.org_id = d."orgId" and o.lineage = d.lineage
          and name > 'wal/' and name < 'wal/G') as segment,
        exists (select from jsonb_array_elements_text(d."destinationIds") as t(id), backup_object o
          where o.org_id = d."orgId" and o.backup_id = b.id and not exists (select from backup_copy c
            where c.org_id = o.org_id and c.lineage = o.lineage and c.name = o.name
              and c.destination_id = t.id::uuid and not c.removing)) as missing
      from jsonb_to_recordset(${sql.json(
        databases.map(({ orgId, uid, lineage, destinationIds }) => ({ orgId, uid, lineage, destinationIds }))
      )}::jsonb) as d("orgId" uuid, uid uuid, lineage uuid, "destinationIds" jsonb)
      left join lateral (
        select id, consistent_at, timeline from backup_job j
        where j.org_id = d."orgId" and j.database_uid = d.uid and j.lineage = d.lineage and kind = 'backup'
          and status = 'succeeded'
        order by consistent_at desc limit 1
      ) b on true`)

  return Effect.fnUntraced(function* (databases: ReadonlyArray<ManagedDatabase>) {
    const ready = databases.filter((one) => one.ready)
    if (ready.length === 0) return
    const now = yield* Clock.currentTimeMillis
    const byUid = new Map((yield* states(ready)).map((state) => [state.uid, state]))
    for (const database of ready) {
      const state = byUid.get(database.uid)
      if (state === undefined) continue
      const { orgId, uid, lineage } = database
      const job = { orgId, databaseUid: uid, lineage }
      const reason = backupReason(state, now, options.backupEveryMs)
      if (reason !== undefined && !state.openBackup && now - +(state.backupFailed ?? 0) > pauseMs) {
        yield* jobs.queue({ ...job, kind: "backup", backupId: null, reason })
      }
      if (state.openDrill) continue
      if (state.toProve !== null) {
        yield* jobs.queue({ ...job, kind: "drill", backupId: state.toProve, reason: "request" })
      } else if (
        state.newestId !== null &&
        state.newest !== null &&
        now - +(state.drillFailed ?? 0) > pauseMs &&
        now > drillDue(uid, state.newest, state.drilled, options.drillEveryMs)
      ) {
        yield* jobs.queue({ ...job, kind: "drill", backupId: state.newestId, reason: "schedule" })
      }
    }
  })
})

const backupReason = (state: State, now: number, every: number) => {
  if (state.newest === null) return "first"
  if (state.segment !== null && state.timeline !== null && timelineOf(state.segment) > state.timeline) {
    return "timeline"
  }
  if (state.missing) return "destination"
  return now - +state.newest > every ? "schedule" : undefined
}

/** Spread by the database, so that a machine full of them does not restore all at once. */
const drillDue = (uid: string, newest: Date, drilled: Date | null, every: number) => {
  if (every === Number.POSITIVE_INFINITY) return every
  const share = createHash("sha256").update(uid).digest().readUInt32BE(0) / 2 ** 32
  // The first within a day of the first backup; the backup may be replaced by a newer one before that.
  return drilled === null
    ? +newest + share * Math.min(every, 12 * 3_600_000)
    : +drilled + every * (0.9 + 0.2 * share)
}
