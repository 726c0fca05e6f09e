/**
 * Waking what waits for another resource, when two results are stored at the same time.
 *
 * The statement that stores a change wakes who waits for it, and the one that stores "it waits" looks whether what it
 * waits for has changed; but each sees only what had committed when it began. So whoever has written looks once more,
 * afterwards: of two that overlap, at least the later one then sees the other.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import type { Recorded, WaitTarget } from "#src/engine/WorkStore.ts"
import { repeatable, type Sql } from "./Db.ts"
import { dueNow } from "./work-rows.ts"

/** `stored`: results that changed something and have committed. */
export const wakeLate = (sql: Sql, stored: ReadonlyArray<Recorded>): Effect.Effect<void> => {
  if (stored.length === 0) return Effect.void
  const input = stored.map(({ lease, waitingOn, seen }) => ({
    org_id: lease.orgId,
    uid: lease.uid,
    ...waitColumns(waitingOn),
    seen: waitingOn === null ? null : seen
  }))
  const waits = stored.some(({ waitingOn }) => waitingOn !== null)
  // Index: work_waiting, and the primary keys.
  return repeatable(sql`
    with input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
        as i(org_id uuid, uid uuid, ${waitTypes(sql)}, seen pg_snapshot)
    ),
    late as (
      select w.org_id, w.uid from input i
      join resource c on c.org_id = i.org_id and c.uid = i.uid
      join work w on w.org_id = i.org_id and w.waiting_on = any(array[c.uid, ${named(sql, "c")}])
      ${waits ? sql`union select i.org_id, i.uid from input i where ${targetChanged(sql)}` : sql``}
    ),
    woken as (
      update work w set
        waiting_on = null, ${dueNow(sql)}
      from late l
      where w.org_id = l.org_id and w.uid = l.uid and w.waiting_on is not null
      returning w.uid
    )
    select pg_notify('svc_work', '') from woken limit 1`).pipe(
    // The results are stored; who waits looks again by itself after a while.
    Effect.catchCause((cause) => Effect.logWarning("who waits for a change learns of it late", cause))
  )
}

/** What result `i` waits for, as columns of its row, with their types. */
export const waitColumns = (target: WaitTarget | null) =>
  typeof target === "object" && target !== null
    ? {
        waits_kind: target.kind,
        waits_project: target.projectId,
        waits_environment: target.environment,
        waits_name: target.name
      }
    : { waits_uid: target }
export const waitTypes = (sql: Sql): Fragment =>
  sql`waits_uid uuid, waits_kind text, waits_project uuid, waits_environment text, waits_name text`

/** What `work.waiting_on` holds: the uid of what result `i` waits for, or what stands for its name. */
export const waitingOn = (sql: Sql): Fragment =>
  sql`coalesce(i.waits_uid, svc_named(i.waits_kind, i.waits_project, i.waits_environment, i.waits_name))`

/** What stands for the name of a row of `resource` there. */
export const named = (sql: Sql, row: string): Fragment => {
  const column = (name: string) => sql`${sql.literal(row)}.${sql.literal(name)}`
  return sql`svc_named(${column("kind")}, ${column("project_id")}, ${column("environment")}, ${column("name")})`
}

/**
 * Whether what result `i` waits for was written by a transaction that the snapshot `i.seen` does not show. Numbers that
 * no transaction has had yet come with a store that was restored elsewhere, and tell nothing. What is waited for by
 * name is waited for to come: what was gone before is not looked at. Indexes: the primary key, resource_by_place.
 */
export const targetChanged = (sql: Sql): Fragment => {
  const changed = (
    where: Fragment
  ) => sql`exists (select from resource d where d.org_id = i.org_id and ${where}
    and not pg_visible_in_snapshot(d.txid, i.seen) and d.txid < pg_snapshot_xmax(pg_current_snapshot()))`
  const one = sql`d.kind = i.waits_kind and d.name = i.waits_name and d.deleted_at is null`
  return sql`(${changed(sql`d.uid = i.waits_uid`)}
    or ${changed(sql`${one} and d.project_id = i.waits_project and d.environment = i.waits_environment`)}
    or i.waits_kind is not null and i.waits_environment is null and (
      ${changed(sql`${one} and d.environment is null and d.project_id = i.waits_project`)}
      or i.waits_project is null and ${changed(sql`${one} and d.environment is null and d.project_id is null`)}))`
}
