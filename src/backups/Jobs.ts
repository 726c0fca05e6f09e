/**
 * Base backups and drills as rows: asked for, made under a lease by one process, and ended well or not. Whoever was
 * killed loses the lease; the next one removes what was half made and begins anew, a bounded number of times.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { ServedRegion } from "#src/engine/options.ts"
import { storableText } from "#src/storable.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { type Reservation, reservedAt } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { isElsewhere } from "./Databases.ts"
import { channel } from "./Ledger.ts"

export interface JobRecord {
  readonly orgId: string
  readonly id: string
  readonly kind: "backup" | "drill"
  readonly databaseUid: string
  readonly lineage: string
  readonly backupId: string | null
  readonly reason: string
  readonly status: "queued" | "running" | "succeeded" | "failed"
  readonly createdAt: Date
  readonly startedAt: Date | null
  readonly finishedAt: Date | null
  readonly bytesDone: number
  readonly bytesTotal: number
  readonly storedBytes: number | null
  readonly step: string | null
  readonly error: string | null
  readonly startSegment: string | null
  readonly stopSegment: string | null
  readonly timeline: number | null
  readonly consistentAt: Date | null
  readonly provenAt: Date | null
}

/** A job that this process has. */
export interface ClaimedJob {
  readonly orgId: string
  readonly id: string
  readonly kind: "backup" | "drill"
  readonly databaseUid: string
  readonly lineage: string
  readonly backupId: string | null
  readonly attempt: number
  readonly token: string
}

export interface Progress {
  readonly step: string
  readonly done: number
  readonly total: number
}

/** What a base backup came to. */
export interface BackupResult {
  readonly label: string
  readonly tablespaceMap: string
  readonly startSegment: string
  readonly stopSegment: string
  readonly timeline: number
  readonly consistentAt: Date
  readonly storedBytes: number
}

/** Attempts of a job; an attempt ends by itself only when its process is killed or the far end fails. */
export const mostAttempts = 8
/** Each of them fails only when a job that was open at its beginning has ended at its end. */
const mostTries = 5
/** A job that takes longer is given up, whatever it says of its progress. */
const deadlineHours = 24
/** Ended jobs that are kept to be looked at, besides the backups that are still there. */
const keepDays = 30

const jobColumns = (sql: Sql) =>
  sql.literal(`j.org_id as "orgId", j.id, j.kind, j.database_uid as "databaseUid", j.lineage,
    j.backup_id as "backupId", j.reason, j.status, j.created_at as "createdAt", j.started_at as "startedAt",
    j.finished_at as "finishedAt", j.bytes_done::float8 as "bytesDone", j.bytes_total::float8 as "bytesTotal",
    j.stored_bytes::float8 as "storedBytes", j.step, j.error, j.start_segment as "startSegment",
    j.stop_segment as "stopSegment", j.timeline, j.consistent_at as "consistentAt", j.proven_at as "provenAt"`)

export class Jobs extends Context.Service<
  Jobs,
  {
    /**
     * Answers the job that is open now: there is one of each kind at a time for a history of a database. A request that
     * is tried again is answered with a job that was open since its first try, ended or not.
     */
    readonly queue: (
      job: Pick<JobRecord, "orgId" | "kind" | "databaseUid" | "lineage" | "backupId"> & {
        readonly reason: string
        readonly drill?: boolean
      },
      actor?: Actor,
      reservation?: Reservation
    ) => Effect.Effect<JobRecord, StoreUnavailable>
    /** Of databases of this process's region. `held`: how many jobs of each organization the asking process has; those with the fewest come first. */
    readonly claim: (
      most: number,
      seconds: number,
      held?: ReadonlyMap<string, number>
    ) => Effect.Effect<ReadonlyArray<ClaimedJob>, StoreUnavailable>
    /** Milliseconds until the first open job is due, or its lease ends; undefined: none is open. */
    readonly nextIn: Effect.Effect<number | undefined, StoreUnavailable>
    /** Extends the lease and tells of progress; false: the job is somebody else's now, or past its deadline. */
    readonly extend: (
      job: ClaimedJob,
      progress: Progress,
      seconds: number
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** False: the job is somebody else's now. */
    readonly succeed: (job: ClaimedJob, result?: BackupResult) => Effect.Effect<boolean, StoreUnavailable>
    /** Failed for good, or to be tried again after some seconds. */
    readonly fail: (
      job: ClaimedJob,
      error: string,
      again: number | undefined
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** For a process that stops: somebody else may go on at once. */
    readonly release: (jobs: ReadonlyArray<ClaimedJob>) => Effect.Effect<void, StoreUnavailable>
    /** Newest first. */
    readonly list: (
      orgId: string,
      databaseUid: string,
      kind: "backup" | "drill",
      limit: number
    ) => Effect.Effect<ReadonlyArray<JobRecord>, StoreUnavailable>
    readonly get: (orgId: string, id: string) => Effect.Effect<Option.Option<JobRecord>, StoreUnavailable>
    /** Base backups that can be restored, of one history. */
    readonly bases: (
      orgId: string,
      lineage: string
    ) => Effect.Effect<ReadonlyArray<JobRecord>, StoreUnavailable>
    readonly labelOf: (
      orgId: string,
      id: string
    ) => Effect.Effect<
      Option.Option<{ readonly label: string; readonly tablespaceMap: string }>,
      StoreUnavailable
    >
    /** Of all jobs that go on or wait. */
    readonly open: Effect.Effect<ReadonlySet<string>, StoreUnavailable>
    /** Backups that failed and have objects all the same: whoever made them was killed for the last time. */
    readonly halfMade: Effect.Effect<
      ReadonlyArray<Pick<ClaimedJob, "orgId" | "lineage" | "id">>,
      StoreUnavailable
    >
    /** Forgets ended jobs that keep nothing any more. */
    readonly tidy: Effect.Effect<void, StoreUnavailable>
  }
>()("svc/backups/Jobs") {
  static readonly layer = Layer.effect(
    Jobs,
    Effect.gen(function* () {
      const { api, engine: sql } = yield* Db
      const region = yield* ServedRegion
      const mine = (job: ClaimedJob) =>
        sql`org_id = ${job.orgId}::uuid and id = ${job.id}::uuid and lease_token = ${job.token}::bigint
          and finished_at is null`

      return Jobs.of({
        queue: Effect.fn("Jobs.queue")(function* (job, actor, reservation) {
          const by = actor === undefined ? sql : api
          const id = reservation?.uid ?? randomUUIDv7()
          const inOrganization = by`j.org_id = ${job.orgId}::uuid and ${inOrg(by, job.orgId)}`
          const sameWork = by`j.database_uid = ${job.databaseUid}::uuid and j.lineage = ${job.lineage}::uuid
            and j.kind = ${job.kind}::text`
          const since = reservation?.again === true ? reservedAt(reservation) : undefined
          /**
           * The job that the request made, whatever the database and its history are by now; else one that does what was
           * asked for: that goes on, or ended since the first try. It is proved if anybody wants that.
           */
          const there = by<JobRecord>`
            update backup_job j set drill = j.drill or ${job.drill ?? false}::boolean
            where ${inOrganization} and j.id = (
              select j.id from backup_job j
              where ${inOrganization} and (j.id = ${id}::uuid or ${sameWork} and (j.finished_at is null
                ${since === undefined ? by`` : by`or j.finished_at >= ${since}::timestamptz`}))
              order by j.id <> ${id}::uuid, j.created_at desc limit 1)
            returning ${jobColumns(by)}`
          if (since !== undefined) {
            const [before] = yield* repeatable(there)
            if (before !== undefined) return before
          }
          const audited = actor === undefined ? by`select` : auditOf(by, job.orgId, actor, "made")
          for (let attempt = 0; attempt < mostTries; attempt++) {
            const rows = yield* orUnavailable(by<JobRecord>`
              with made as (
                insert into backup_job as j (org_id, id, kind, database_uid, lineage, backup_id, reason, drill)
                select ${job.orgId}::uuid, ${id}::uuid, ${job.kind}::text, ${job.databaseUid}::uuid,
                  ${job.lineage}::uuid, ${job.backupId}::uuid, ${job.reason}::text, ${job.drill ?? false}::boolean
                where ${inOrg(by, job.orgId)}
                on conflict do nothing
                returning ${jobColumns(by)}
              ), audited as (${audited}), told as (select pg_notify(${channel}, '') from made)
              select m.* from made m left join told on true`)
            if (rows[0] !== undefined) return rows[0]
            const open = yield* orUnavailable(there)
            if (open[0] !== undefined) return open[0]
          }
          return yield* new StoreUnavailable({
            message: "The job was neither made nor found: others came and went meanwhile"
          })
        }),
        // Index: backup_job_due.
        claim: Effect.fn("Jobs.claim")(function* (most, seconds, held = new Map<string, number>()) {
          return yield* repeatable(sql<ClaimedJob>`
            with due as (
              select org_id, id from backup_job j where finished_at is null and due_at <= now()
                and not ${isElsewhere(sql, "j", region)}
              order by coalesce((${sql.json(Object.fromEntries(held))}::jsonb ->> org_id::text)::int, 0), due_at
              limit ${most}::int for update skip locked
            ), given_up as (
              update backup_job j set status = 'failed', finished_at = now(), due_at = null, lease_token = null,
                error = coalesce(j.error, 'Whoever worked on it was ended too often')
              from due d where j.org_id = d.org_id and j.id = d.id
                and (j.attempt >= ${mostAttempts}::int or j.deadline_at < now())
            )
            update backup_job j set status = 'running', attempt = j.attempt + 1,
              started_at = coalesce(j.started_at, now()), lease_token = nextval('backup_token'),
              deadline_at = coalesce(j.deadline_at, now() + ${deadlineHours}::int * interval '1 hour'),
              due_at = now() + ${seconds}::int * interval '1 second', bytes_done = 0
            from due d where j.org_id = d.org_id and j.id = d.id
              and j.attempt < ${mostAttempts}::int and (j.deadline_at is null or j.deadline_at >= now())
            returning j.org_id as "orgId", j.id, j.kind, j.database_uid as "databaseUid", j.lineage,
              j.backup_id as "backupId", j.attempt, j.lease_token::text as token`)
        }),
        // Index: backup_job_due.
        nextIn: Effect.map(
          repeatable(sql<{ readonly next: number | null }>`
            select (extract(epoch from min(due_at) - now()) * 1000)::float8 as next
            from backup_job j where finished_at is null and not ${isElsewhere(sql, "j", region)}`),
          ([row]) => row?.next ?? undefined
        ),
        extend: Effect.fn("Jobs.extend")(function* (job, { step, done, total }, seconds) {
          const rows = yield* repeatable(sql`
            update backup_job set due_at = now() + ${seconds}::int * interval '1 second', step = ${step}::text,
              bytes_done = ${done}::bigint, bytes_total = ${total}::bigint
            where ${mine(job)} and deadline_at > now() returning id`)
          return rows.length > 0
        }),
        succeed: Effect.fn("Jobs.succeed")(function* (job, result) {
          const rows = yield* repeatable(sql`
            with done as (
              update backup_job set status = 'succeeded', finished_at = now(), due_at = null, lease_token = null,
                step = null, error = null, label = ${result?.label ?? null}::text,
                tablespace_map = ${result?.tablespaceMap ?? null}::text,
                start_segment = ${result?.startSegment ?? null}::text,
                stop_segment = ${result?.stopSegment ?? null}::text,
                timeline = ${result?.timeline ?? null}::int,
                consistent_at = ${result?.consistentAt ?? null}::timestamptz,
                stored_bytes = ${result?.storedBytes ?? null}::bigint
              where ${mine(job)} returning org_id, kind, backup_id
            ), proven as (
              update backup_job b set proven_at = now() from done d
              where d.kind = 'drill' and b.org_id = d.org_id and b.id = d.backup_id
            )
            select pg_notify(${channel}, '') from done`)
          return rows.length > 0
        }),
        fail: Effect.fn("Jobs.fail")(function* (job, error, again) {
          const rows = yield* repeatable(sql`
            update backup_job set error = ${storableText(error)}::text, lease_token = null, step = null,
              status = case when ${again === undefined}::boolean then 'failed' else 'queued' end,
              finished_at = case when ${again === undefined}::boolean then now() end,
              due_at = case when ${again !== undefined}::boolean
                then now() + ${again ?? 0}::float8 * interval '1 second' end
            where ${mine(job)} returning id`)
          return rows.length > 0
        }),
        release: Effect.fn("Jobs.release")(function* (jobs) {
          for (const job of jobs) {
            yield* repeatable(sql`
              with free as (
                update backup_job set due_at = now(), lease_token = null, status = 'queued', attempt = attempt - 1
                where ${mine(job)} returning id
              )
              select pg_notify(${channel}, '') from free`)
          }
        }),
        // Index: backup_job_listing.
        list: Effect.fn("Jobs.list")(function* (orgId, databaseUid, kind, limit) {
          return yield* repeatable(api<JobRecord>`
            select ${jobColumns(api)} from backup_job j
            where org_id = ${orgId}::uuid and database_uid = ${databaseUid}::uuid and kind = ${kind}::text
              and ${inOrg(api, orgId)}
            order by created_at desc, id desc limit ${limit}::int`)
        }),
        get: Effect.fn("Jobs.get")(function* (orgId, id) {
          const [row] = yield* repeatable(api<JobRecord>`
            select ${jobColumns(api)} from backup_job j
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(api, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        bases: Effect.fn("Jobs.bases")(function* (orgId, lineage) {
          return yield* repeatable(sql<JobRecord>`
            select ${jobColumns(sql)} from backup_job j
            where org_id = ${orgId}::uuid and lineage = ${lineage}::uuid and kind = 'backup'
              and status = 'succeeded'
            order by consistent_at`)
        }),
        labelOf: Effect.fn("Jobs.labelOf")(function* (orgId, id) {
          const [row] = yield* repeatable(sql<{
            readonly label: string | null
            readonly tablespaceMap: string | null
          }>`
            select label, tablespace_map as "tablespaceMap" from backup_job
            where org_id = ${orgId}::uuid and id = ${id}::uuid`)
          return row === undefined || row.label === null
            ? Option.none()
            : Option.some({ label: row.label, tablespaceMap: row.tablespaceMap ?? "" })
        }),
        open: Effect.map(
          repeatable(sql<{ readonly id: string }>`select id from backup_job where finished_at is null`),
          (rows) => new Set(rows.map(({ id }) => id))
        ),
        halfMade: repeatable(sql<Pick<ClaimedJob, "orgId" | "lineage" | "id">>`
          select org_id as "orgId", lineage, id from backup_job j
          where kind = 'backup' and status = 'failed'
            and exists (select from backup_object o where o.org_id = j.org_id and o.backup_id = j.id)`),
        tidy: Effect.asVoid(
          repeatable(sql`
            delete from backup_job where finished_at < now() - ${keepDays}::int * interval '1 day'
              and (kind = 'drill' or status = 'failed')`)
        )
      })
    })
  )
}
