/**
 * Which destinations have something to do, and which of those are left alone for now: one that fails is not tried for
 * a while, longer each time, and then with one copy alone. Kept in the store, so that all processes leave it alone.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { answered } from "#src/engine/answered.ts"
import { ServedRegion } from "#src/engine/options.ts"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { isHistoryElsewhere } from "../Databases.ts"

/** One of the two things that are done at a destination. */
export interface Way {
  readonly orgId: string
  readonly destinationId: string
  readonly removing: boolean
}

/** One at which something waits. */
export interface WaitingWay extends Way {
  /** It failed, and is to be tried with one copy. */
  readonly paused: boolean
  /** Milliseconds until its first copy is due and its pause is over; none or less: now. */
  readonly dueIn: number
}

/** Whoever tries has so long before somebody else may as well: one that was killed is not waited for much longer. */
const trySeconds = 30
const mostSeconds = 600
/** Failures in a row before it is called trouble. */
const troubleAfter = 3

/** A statement about copies or destinations, with an end to the wait for the store. */
export const asked = <A, E, R>(statement: Effect.Effect<A, E, R>) =>
  answered("keep account of copies of backups")(repeatable(statement))

export const makeDestinationBackoff = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const region = yield* ServedRegion
  const of = ({ orgId, destinationId, removing }: Way) =>
    sql`org_id = ${orgId}::uuid and destination_id = ${destinationId}::uuid and removing = ${removing}::boolean`
  const after = (failures: Fragment) =>
    sql`now() + least(${mostSeconds}::int, 2 ^ least(${failures}, 10)) * (0.5 + random()) * interval '1 second'`

  return {
    /** From one destination to the next in the index of what is due, to the first copy of each. */
    ways: asked(sql<WaitingWay>`
      with recursive way as (
        (select org_id, destination_id, removing from backup_copy where due_at is not null
          order by org_id, destination_id, removing limit 1)
        union all
        select n.org_id, n.destination_id, n.removing from way w cross join lateral (
          select org_id, destination_id, removing from backup_copy c
          where due_at is not null
            and (c.org_id, c.destination_id, c.removing) > (w.org_id, w.destination_id, w.removing)
          order by org_id, destination_id, removing limit 1) n
      )
      select w.org_id as "orgId", w.destination_id as "destinationId", w.removing, p.due_at is not null as paused,
        (extract(epoch from greatest(first.due_at, p.due_at) - now()) * 1000)::float8 as "dueIn"
      from way w left join backup_destination_pause p using (org_id, destination_id, removing)
      -- What lies on a machine of another region is for processes there.
      cross join lateral (
        select c.due_at from backup_copy c where c.org_id = w.org_id and c.destination_id = w.destination_id
          and c.removing = w.removing and c.due_at is not null and not ${isHistoryElsewhere(sql, "c", region)}
        order by c.due_at limit 1) as first`),
    /** To be the one that tries. */
    take: (way: Way) =>
      Effect.map(
        asked(sql`
          update backup_destination_pause set due_at = now() + ${trySeconds}::int * interval '1 second'
          where ${of(way)} and due_at <= now() returning failures`),
        (rows) => rows.length > 0
      ),
    /** Answers how often in a row it failed by now. Of several that fail at the same time only the first one counts. */
    failed: (way: Way, error: string, tried: boolean) =>
      Effect.map(
        asked(sql<{ readonly failures: number }>`
          insert into backup_destination_pause as p (org_id, destination_id, removing, error, due_at)
          values (${way.orgId}::uuid, ${way.destinationId}::uuid, ${way.removing}::boolean, ${storableText(error)}::text,
            ${after(sql`1`)})
          on conflict (org_id, destination_id, removing) do update set
            failures = p.failures + ${tried}::boolean::int, error = excluded.error,
            due_at = case when ${tried}::boolean
              then ${after(sql`p.failures + 1`)} else p.due_at end
          returning failures`),
        ([row]) => row?.failures ?? 1
      ),
    over: (way: Way) => Effect.asVoid(asked(sql`delete from backup_destination_pause where ${of(way)}`)),
    /** Nothing is left to do there. */
    tidy: Effect.asVoid(
      asked(sql`
        delete from backup_destination_pause p where due_at < now() and not exists (
          select from backup_copy c where c.org_id = p.org_id and c.destination_id = p.destination_id
            and c.removing = p.removing and c.due_at is not null)`)
    ),
    /**
     * Histories of databases that name a destination which did not take their backups for some time, with what it said,
     * and those with an object that it did not take.
     */
    failing: asked(sql<{ readonly orgId: string; readonly lineage: string; readonly error: string }>`
      with failing as (
        select r.org_id, coalesce(r.spec->>'lineage', r.uid::text)::uuid as lineage, p.error
        from backup_destination_pause p join resource r on r.org_id = p.org_id and r.kind = 'Database'
          and r.deleted_at is null and r.deletion_requested_at is null
          and r.spec->'backup'->'destinationIds' ? p.destination_id::text
        where not p.removing and p.failures >= ${troubleAfter}::int and exists (
          select from backup_copy c where c.org_id = p.org_id and c.destination_id = p.destination_id
            and not c.removing and c.due_at is not null)
        union all
        select c.org_id, c.lineage, c.error
        from backup_copy c join backup_lineage l on l.org_id = c.org_id and l.lineage = c.lineage
          join resource r on r.org_id = l.org_id and r.uid = l.database_uid and r.kind = 'Database'
            and r.deleted_at is null and r.deletion_requested_at is null
            and r.spec->'backup'->'destinationIds' ? c.destination_id::text
        -- Index: backup_copy_troubled.
        where c.tries >= 3 and c.stored_at is null and not c.removing and c.due_at is not null
      )
      select distinct on (org_id, lineage) org_id as "orgId", lineage, error from failing
      order by org_id, lineage`)
  }
})
