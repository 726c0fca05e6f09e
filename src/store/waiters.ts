/**
 * Waking what waits for another resource, when two results are stored at the same time.
 *
 * The statement that stores a change wakes who waits for it, and the one that stores "it waits" looks whether what it
 * waits for has changed; but each sees only what had committed when it began. So whoever has written looks once more,
 * afterwards: of two that overlap, at least the later one then sees the other.
 */
import * as Effect from "effect/Effect"
import type { Recorded } from "#src/engine/WorkStore.ts"
import { repeatable, type Sql } from "./Db.ts"
import { dueAgain } from "./queue-entries.ts"

/** `stored`: results that changed something and have committed. */
export const wakeLate = (sql: Sql, stored: ReadonlyArray<Recorded>): Effect.Effect<void> => {
  if (stored.length === 0) return Effect.void
  const input = stored.map(({ lease, waitingOn, seen }) => ({
    org_id: lease.orgId,
    uid: lease.uid,
    waiting_on: waitingOn,
    seen: waitingOn === null ? null : seen
  }))
  // Index: work_waiting, and the primary keys.
  return repeatable(sql`
    with input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb)
        as i(org_id uuid, uid uuid, waiting_on uuid, seen pg_snapshot)
    ),
    late as (
      select w.org_id, w.uid from input i join work w on w.org_id = i.org_id and w.waiting_on = i.uid
      union
      select i.org_id, i.uid from input i
      join resource d on d.org_id = i.org_id and d.uid = i.waiting_on
      where ${changedSince(sql)}
    ),
    woken as (
      update work w set
        waiting_on = null, ${dueAgain(sql)}
      from late l
      where w.org_id = l.org_id and w.uid = l.uid and w.waiting_on is not null
      returning w.uid
    )
    select pg_notify('svc_work', '') from woken limit 1`).pipe(
    // The results are stored; who waits looks again by itself after a while.
    Effect.catchCause((cause) => Effect.logWarning("who waits for a change learns of it late", cause))
  )
}

/**
 * Whether resource `d` was written by a transaction that snapshot `i.seen` does not show. Numbers that no transaction
 * has had yet come with a store that was restored elsewhere, and tell nothing.
 */
export const changedSince = (sql: Sql) => sql`
  not pg_visible_in_snapshot(d.txid, i.seen) and d.txid < pg_snapshot_xmax(pg_current_snapshot())`
