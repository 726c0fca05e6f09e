/**
 * The wish that an organization goes, as one transaction.
 *
 * The row is marked first. Whoever adds a member, a key or an invitation holds the row shared while doing so, and
 * finds it marked afterwards; so the second statement, which takes all access away, sees everything there is.
 */
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as SqlError from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { auditOf } from "#src/store/audit-cte.ts"
import { inOrg, type Sql, transaction } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { TableRule } from "#src/store/table-rules.ts"
import { afterLock, dueNow, lockWork, oneOfMany } from "#src/store/work-rows.ts"

/** What became of the wish to delete an organization. */
export type Deletion =
  | { readonly _tag: "Deleted" }
  | { readonly _tag: "Missing" }
  | { readonly _tag: "Personal" }
  | { readonly _tag: "NotOwner" }
  | { readonly _tag: "Changed" }
  | { readonly _tag: "Protected"; readonly resource: string }

/** The organization, held so that it is not marked for deletion until the statement's end: `exists (select from here)`. */
export const liveOrganization = (sql: Sql, orgId: string): Fragment => sql`
  select id from organization
  where id = ${orgId}::uuid and deletion_requested_at is null and ${inOrg(sql, orgId)} for share`

export const requestDeletion = (
  sql: Sql,
  rules: ReadonlyArray<TableRule>,
  orgId: string,
  by: { readonly userId: string; readonly expectedRevision?: string },
  actor: Actor
): Effect.Effect<Deletion, SqlError.SqlError> => {
  const expected = by.expectedRevision ?? null
  const marked = Effect.gen(function* () {
    const rows = yield* sql`
      with left_behind as (
        update organization o set deletion_requested_at = now(), revision = revision + 1
        where id = ${orgId}::uuid and deletion_requested_at is null and not is_personal and ${inOrg(sql, orgId)}
          and (${expected}::bigint is null or revision = ${expected}::bigint)
          and exists (select from member m
            where m.org_id = o.id and m.user_id = ${by.userId}::uuid and m.role = 'owner')
          and not exists (select from resource r
            where r.org_id = o.id and r.protected and r.deleted_at is null)
        returning id
      ), audited as (${auditOf(sql, orgId, actor, "left_behind")})
      select id from left_behind`
    if (rows.length === 0) return yield* explain(sql, orgId, by.userId)
    const gate = inOrg(sql, orgId)
    yield* sql`
      with ${endAccess(sql, rules, orgId, gate)},
      ${markDeleted(sql, orgId, actor.principal, gate)}
      select pg_notify('svc_work', ''), pg_notify('svc_departure', '') from (select count(*) from doomed) d`
    return { _tag: "Deleted" as const }
  })
  return Effect.retry(transaction(sql, marked), {
    times: 6,
    schedule: Schedule.exponential("20 millis").pipe(Schedule.jittered),
    while: (error) => SqlError.isSqlError(error) && error.reason._tag === "DeadlockError"
  })
}

/** What the rules say is done at once. Names and conditions come from the rules, never from outside. */
const endAccess = (sql: Sql, rules: ReadonlyArray<TableRule>, orgId: string, gate: Fragment): Fragment =>
  sql.join(
    ", ",
    false
  )(
    rules.flatMap(({ name, onOrganizationDeletion: rule }) => {
      const mine = sql`org_id = ${orgId}::uuid and ${gate}`
      if (rule === "delete") return [sql`${sql(`${name}_ended`)} as (delete from ${sql(name)} where ${mine})`]
      if (typeof rule === "string" || rule.action !== "revoke") return []
      const part = sql.literal(rule.onlyIf === undefined ? "" : `and ${rule.onlyIf}`)
      return [
        sql`${sql(`${name}_ended`)} as (
          update ${sql(name)} set revoked_at = now() where revoked_at is null ${part} and ${mine})`
      ]
    })
  )

/** Resources that are asked to go at once: a request answers in bounded time, and `OrganizationFinalizer.ts` goes on. */
export const deletionBatch = 5_000

/**
 * Asks for the deletion of resources that are not asked for yet: the engine takes children first by itself. Like the
 * engine it locks queue entries before resources, so that the two do not wait for each other.
 */
export const markDeleted = (sql: Sql, orgId: string, principal: string, gate: Fragment): Fragment => sql`
  candidates as materialized (
    select uid from resource
    where org_id = ${orgId}::uuid and deleted_at is null and deletion_requested_at is null and ${gate}
    limit ${deletionBatch}::int
  ),
  ${lockWork(sql, orgId, "candidates", gate, oneOfMany)},
  doomed as (
    update resource set deletion_requested_at = now(), phase = 'deleting', phase_since = now(), protected = false,
      revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
    where org_id = ${orgId}::uuid and deleted_at is null and ${gate} and ${afterLock(sql)}
      and ${oneOfMany(sql, "uid", "candidates")}
    returning uid, generation
  ), requeued as (
    update work w set waiting_on = null, ${dueNow(sql)}
    where w.org_id = ${orgId}::uuid and ${oneOfMany(sql, "w.uid", "doomed")} and ${gate}
  ), told as (
    insert into resource_event (org_id, uid, type, reason, message, actor, generation)
    select ${orgId}::uuid, uid, 'Normal', 'DeletionRequested', 'Deletion requested with the organization',
      ${principal}::text, generation
    from doomed where ${gate}
  )`

const explain = Effect.fnUntraced(function* (sql: Sql, orgId: string, userId: string) {
  const [row] = yield* sql<{
    readonly personal: boolean
    readonly owner: boolean
    readonly guarded: string | null
  }>`
    select o.is_personal as personal,
      exists (select from member m
        where m.org_id = o.id and m.user_id = ${userId}::uuid and m.role = 'owner') as owner,
      (select r.kind || ' "' || r.name || '"' from resource r
        where r.org_id = o.id and r.protected and r.deleted_at is null limit 1) as guarded
    from organization o
    where o.id = ${orgId}::uuid and o.deletion_requested_at is null and ${inOrg(sql, orgId)}`
  if (row === undefined) return { _tag: "Missing" as const }
  if (!row.owner) return { _tag: "NotOwner" as const }
  if (row.personal) return { _tag: "Personal" as const }
  if (row.guarded !== null) return { _tag: "Protected" as const, resource: row.guarded }
  return { _tag: "Changed" as const }
})
