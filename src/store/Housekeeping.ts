/** Keeps what only grows in bounds: every append-only table has an age at which its rows go, in small batches. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { removeInBatches } from "#src/loops/retention.ts"
import { Db, repeatable, type Sql } from "./Db.ts"

const batch = 5_000

const rules = (sql: Sql) => [
  // Followers of the feed have a week to learn of a deletion.
  sql`delete from resource where ctid in (
    select ctid from resource where deleted_at < now() - interval '7 days' limit ${batch}::int) returning uid`,
  sql`delete from resource_event where ctid in (
    select ctid from resource_event where last_at < now() - interval '30 days' limit ${batch}::int) returning uid`,
  sql`delete from audit_log where ctid in (
    select ctid from audit_log where at < now() - interval '400 days' limit ${batch}::int) returning id`,
  sql`delete from plan where ctid in (
    select ctid from plan where expires_at < now() limit ${batch}::int) returning id`,
  sql`delete from idempotency where ctid in (
    select ctid from idempotency where created_at < now() - interval '24 hours' limit ${batch}::int) returning key`,
  sql`delete from rate_limit where ctid in (
    select ctid from rate_limit where updated_at < now() - interval '1 hour' limit ${batch}::int) returning bucket`,
  sql`delete from session where ctid in (
    select ctid from session where expires_at < now() limit ${batch}::int) returning id`,
  sql`delete from mail_outbox where id in (
    select id from mail_outbox where settled_at < now() - interval '30 days' limit ${batch}::int) returning id`,
  // With its deliveries: the last try of any is long past.
  sql`delete from webhook_event where ctid in (
    select ctid from webhook_event where created_at < now() - interval '30 days' limit ${batch}::int) returning id`,
  sql`delete from mail_token where ctid in (
    select ctid from mail_token where expires_at < now() - interval '1 day' limit ${batch}::int) returning digest`,
  sql`delete from invitation where ctid in (
    select ctid from invitation where expires_at < now() - interval '90 days' limit ${batch}::int) returning id`,
  sql`delete from cron_run where ctid in (
    select ctid from cron_run where finished_at < now() - interval '90 days' limit ${batch}::int) returning id`,
  // Configurations that never came in force, and those of deleted destinations whose last copy is gone.
  sql`delete from backup_destination_version where ctid in (
    select v.ctid from backup_destination_version v
    where v.created_at < now() - interval '1 hour'
      and not exists (select from resource r where r.org_id = v.org_id and r.uid = v.destination_id
        and r.deleted_at is null and (r.spec->>'version')::int >= v.version)
      and not exists (select from backup_copy c where c.org_id = v.org_id and c.destination_id = v.destination_id
        and c.version = v.version)
    limit ${batch}::int) returning version`,
  sql`delete from pause where until < now() returning id`
]

/** One round. */
export const tidy = Effect.flatMap(Db, ({ engine: sql }) =>
  removeInBatches("remove old rows", batch, rules(sql).map(repeatable))
)

export const layer = Layer.effectDiscard(periodic({ does: "remove old rows", every: "10 minutes" }, tidy))
