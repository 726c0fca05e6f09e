/** What goes by itself: messages that were kept as long as their queue says, and keys nobody may repeat any more. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { removeInBatches } from "#src/loops/retention.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"

const batch = 5_000

/** The first possible id of what was published `seconds` ago: ids begin with 48 bits of milliseconds (RFC 9562). */
const oldestId = (sql: Sql) => sql`
  (lpad(to_hex((extract(epoch from now()) * 1000)::bigint - q.retention_seconds::bigint * 1000), 12, '0')
    || '00000000000000000000')::uuid`

const rules = (sql: Sql) => [
  // Index: the primary key. What came from another queue has an older id and stays longer.
  sql`delete from queue_message where ctid = any(array(
    select m.ctid from queue q cross join lateral (
      select m.ctid, m.entered_at, m.due_at, m.lease_token from queue_message m
      where m.org_id = q.org_id and m.queue_uid = q.uid and m.id < ${oldestId(sql)}
      order by m.id limit ${batch}::int) m
    where m.entered_at < now() - make_interval(secs => q.retention_seconds)
      and (m.lease_token is null or m.due_at <= now())
    limit ${batch}::int)) returning 1`,
  // Published at the moment at which their queue went. Index: resource_tombstones.
  sql`delete from queue_message where ctid = any(array(
    select m.ctid from resource r join queue_message m on m.org_id = r.org_id and m.queue_uid = r.uid
    where r.deleted_at is not null and r.kind = 'Queue' limit ${batch}::int)) returning 1`,
  // Their sums, once nothing is left that would be taken from them.
  sql`delete from queue_backlog where ctid = any(array(
    select b.ctid from resource r join queue_backlog b on b.org_id = r.org_id and b.queue_uid = r.uid
    where r.deleted_at is not null and r.kind = 'Queue' and not exists (
      select from queue_message m where m.org_id = r.org_id and m.queue_uid = r.uid)
    limit ${batch}::int)) returning 1`,
  sql`delete from queue_key where ctid = any(array(
    select ctid from queue_key where at < now() - interval '24 hours' limit ${batch}::int)) returning 1`
]

/** One round. Several processes may do it at once; each row goes once. */
export const tidy = Effect.flatMap(Db, ({ engine: sql }) =>
  removeInBatches("remove old messages", batch, rules(sql).map(repeatable))
)

export const layer = Layer.effectDiscard(periodic({ does: "remove old messages", every: "1 minute" }, tidy))
