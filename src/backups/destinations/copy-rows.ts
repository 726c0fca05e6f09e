/**
 * The table of copies as a leased loop sees it: what is due at which destination, under whose lease, and what became of
 * it. A lease is a number that rises; only the copy that still has it is written.
 */
import * as Effect from "effect/Effect"
import { ServedRegion } from "#src/engine/options.ts"
import { storableText } from "#src/storable.ts"
import { Db } from "#src/store/Db.ts"
import { isHistoryElsewhere } from "../Databases.ts"
import { asked, type Way } from "./backoff.ts"

/** A copy that this process is to bring to its destination, or to remove there. */
export interface ClaimedCopy extends Way {
  readonly lineage: string
  readonly name: string
  readonly key: string
  /** The destination as it was when somebody last began to put the object there. */
  readonly version: number | null
  readonly tries: number
  readonly lease: string
  /** Of the object; absent when it is gone. */
  readonly sha256: string | null
  /** It alone tries whether a destination that failed works again. */
  readonly trial: boolean
}

/** So many copies of one destination. */
export interface Turn extends Way {
  readonly most: number
  readonly trial: boolean
}

/** Renewed while somebody is at it; what a killed process had begun is begun again after this. */
export const leaseSeconds = 60

/** The same for the same row, whoever has claimed it. */
export const copyId = (one: Pick<ClaimedCopy, "orgId" | "lineage" | "name" | "destinationId">) =>
  `${one.orgId}/${one.lineage}/${one.name}/${one.destinationId}`

export const makeCopyRows = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const region = yield* ServedRegion

  /** While this process has it. */
  const row = (one: ClaimedCopy) =>
    sql`org_id = ${one.orgId}::uuid and lineage = ${one.lineage}::uuid and name = ${one.name}
      and destination_id = ${one.destinationId}::uuid and lease = ${one.lease}::bigint`
  const forget = (one: ClaimedCopy) => Effect.asVoid(asked(sql`delete from backup_copy where ${row(one)}`))
  const release = (one: ClaimedCopy) =>
    Effect.asVoid(asked(sql`update backup_copy set due_at = now(), lease = null where ${row(one)}`))

  return {
    /** Of each destination those that have been due the longest. Index: backup_copy_due. */
    claim: (turns: ReadonlyArray<Turn>) =>
      asked(sql<ClaimedCopy>`
        with turn as materialized (
          select * from jsonb_to_recordset(${sql.json(
            turns.map(({ orgId, destinationId, removing, most, trial }) => ({
              orgId,
              destinationId,
              removing,
              most,
              trial
            }))
          )}::jsonb)
            as t("orgId" uuid, "destinationId" uuid, removing boolean, most int, trial boolean)
        ), due as materialized (
          select d.*, t.trial from turn t cross join lateral (
            select org_id, lineage, name, destination_id from backup_copy c
            where org_id = t."orgId" and destination_id = t."destinationId" and removing = t.removing
              and due_at <= now() and not ${isHistoryElsewhere(sql, "c", region)}
            order by due_at limit t.most for update skip locked) d
        )
        update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second',
          lease = nextval('backup_token')
        from due d where c.org_id = d.org_id and c.lineage = d.lineage and c.name = d.name
          and c.destination_id = d.destination_id
        returning c.org_id as "orgId", c.lineage, c.name, c.key, c.destination_id as "destinationId", c.version,
          c.removing, c.tries, c.lease::text as lease, d.trial, (select o.stored_sha256 from backup_object o
            where o.org_id = c.org_id and o.lineage = c.lineage and o.name = c.name and o.key = c.key) as sha256`),

    /** Answers the ids of those that hold. */
    renew: (held: ReadonlyArray<ClaimedCopy>) =>
      Effect.map(
        asked(sql<{ orgId: string; lineage: string; name: string; destinationId: string }>`
          update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second'
          from jsonb_to_recordset(${sql.json(
            held.map(({ orgId, lineage, name, destinationId, lease }) => ({
              orgId,
              lineage,
              name,
              destinationId,
              lease
            }))
          )}::jsonb) as h("orgId" uuid, lineage uuid, name text, "destinationId" uuid, lease bigint)
          where c.org_id = h."orgId" and c.lineage = h.lineage and c.name = h.name
            and c.destination_id = h."destinationId" and c.lease = h.lease and c.due_at is not null
          returning c.org_id as "orgId", c.lineage, c.name, c.destination_id as "destinationId"`),
        (rows) => new Set(rows.map(copyId))
      ),
    /** Somebody else may begin with it at once. */
    release,
    forget,

    /** Before the object is put. False: it is not wanted any more, or in the hands of somebody else. */
    begin: (one: ClaimedCopy, version: number) =>
      Effect.map(
        asked(sql`
          update backup_copy set version = ${version}::int where ${row(one)} and not removing returning name`),
        (rows) => rows.length > 0
      ),
    /** False: it was taken away meanwhile, or somebody else has it. */
    stored: (one: ClaimedCopy) =>
      Effect.map(
        asked(sql`
          update backup_copy set stored_at = now(), error = null, tries = 0, lease = null,
            due_at = case when removing then now() end
          where ${row(one)} returning name`),
        (rows) => rows.length > 0
      ),
    /** What is gone here before it was copied is wanted nowhere. */
    unwanted: (one: ClaimedCopy) =>
      one.version === null
        ? forget(one)
        : Effect.asVoid(
            asked(sql`update backup_copy set removing = true, tries = 0, lease = null, due_at = now()
              where ${row(one)}`)
          ),
    failed: (one: ClaimedCopy, message: string) =>
      Effect.asVoid(
        asked(sql`
          update backup_copy set tries = tries + 1, error = ${storableText(message)}::text, lease = null,
            due_at = now() + least(600, 2 ^ least(tries + 1, 10)) * (0.5 + random()) * interval '1 second'
          where ${row(one)}`)
      ),

    /**
     * The object may be at its destination, and this process has its copy no more. It is removed there, unless somebody
     * else brings it. False: nobody will, since the row tells of another object by now.
     */
    takeBack: (one: ClaimedCopy, version: number) =>
      Effect.map(
        asked(sql<{ readonly key: string }>`
          insert into backup_copy as c (org_id, lineage, name, key, destination_id, version, removing, due_at)
          values (${one.orgId}::uuid, ${one.lineage}::uuid, ${one.name}::text, ${one.key}::text,
            ${one.destinationId}::uuid, ${version}::int, true, now())
          on conflict (org_id, lineage, name, destination_id) do update set
            lease = case when c.removing and c.key = excluded.key then null else c.lease end,
            due_at = case when c.removing and c.key = excluded.key then now() else c.due_at end
          returning key`),
        ([found]) => found?.key === one.key
      ),
    /** Removals at a destination are given up. Answers how many objects stay there. */
    giveUpRemovals: (way: Way) =>
      Effect.map(
        asked(sql`
          delete from backup_copy where org_id = ${way.orgId}::uuid and destination_id = ${way.destinationId}::uuid
            and removing and due_at is not null returning name`),
        (rows) => rows.length
      ),
    /** Copies for destinations that their database's policy does not name any more; those that are there stay. */
    tidy: Effect.asVoid(
      asked(sql`
        with unwanted as materialized (
          select c.org_id, c.lineage, c.name, c.destination_id
          from backup_copy c join backup_lineage l on l.org_id = c.org_id and l.lineage = c.lineage
            join resource r on r.org_id = l.org_id and r.uid = l.database_uid and r.kind = 'Database'
              and r.deleted_at is null and r.deletion_requested_at is null
          where c.due_at is not null and c.stored_at is null and not c.removing
            and not coalesce(r.spec->'backup'->'destinationIds' ? c.destination_id::text, false)
        ), never as (
          delete from backup_copy c using unwanted u
          where c.org_id = u.org_id and c.lineage = u.lineage and c.name = u.name
            and c.destination_id = u.destination_id and c.version is null
        )
        -- Of what was begun something may be there.
        update backup_copy c set removing = true, tries = 0, lease = null, due_at = now() from unwanted u
        where c.org_id = u.org_id and c.lineage = u.lineage and c.name = u.name
          and c.destination_id = u.destination_id and c.version is not null`)
    )
  }
})
