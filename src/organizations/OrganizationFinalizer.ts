/**
 * Organizations on their way out: once the engine has removed the last resource, the organization goes with all of
 * its records but the audit log, which is kept for its time.
 *
 * Every round looks at what is there, so it does not matter which process marked the organization, or whether a
 * request that was under way just then added a resource: that one is asked to go as well.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { announcements } from "#src/store/announcements.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { type TableRule, TableRules } from "#src/store/table-rules.ts"
import { deletionBatch, markDeleted } from "./deletion.ts"

const batch = 5_000
/** An announcement begins a round at once; the slow look is for one that was missed. */
const slowLook = "1 minute"
const whileLeaving = "1 second"

/** One round; answers how many organizations are still leaving. */
export const round = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const rules = yield* TableRules
  // Those that wait for the engine are counted, and take no place of those that something can be done for.
  // Index: organization_leaving.
  const found = yield* repeatable(sql<{
    readonly id: string | null
    readonly live: boolean
    readonly leaving: number
  }>`
    with leaving as materialized (
      select o.id, o.deletion_requested_at as since,
        exists (select from resource r where r.org_id = o.id and r.deleted_at is null) as live,
        exists (select from resource r where r.org_id = o.id and r.deleted_at is null
          and r.deletion_requested_at is null) as unasked
      from organization o where o.deletion_requested_at is not null
    ), due as (select id, live from leaving where unasked or not live order by since limit 100)
    select due.id, due.live, total.leaving
    from (select count(*)::int as leaving from leaving) total left join due on true`)
  for (const { id, live } of found) {
    if (id === null) continue
    yield* repeatable(live ? ask(sql, id) : clear(sql, rules, id)).pipe(
      // One that cannot go keeps no other.
      Effect.catchCause((cause) =>
        Effect.logWarning("a departing organization could not be removed yet", cause, { organization: id })
      )
    )
  }
  return found[0]?.leaving ?? 0
})

/** The rest of what lives in it. */
const ask = (sql: Sql, orgId: string) =>
  Effect.repeat(
    sql`
      with ${markDeleted(sql, orgId, "system", sql`true`)}
      select uid, pg_notify('svc_work', '') from doomed`,
    { while: (rows) => rows.length === deletionBatch }
  )

/**
 * In batches, so that no statement takes long; the organization itself goes last. A request that was under way may add a
 * resource at any moment of this, and the engine removes it only with its queue entry and its secrets: each statement
 * looks by itself that nothing lives in the organization, and a later round goes on.
 */
const clear = Effect.fnUntraced(function* (sql: Sql, rules: ReadonlyArray<TableRule>, orgId: string) {
  // Rows that a resource was made with are seen together with the resource, or not at all. Index: resource_children.
  const empty = sql`not exists (
    select from resource live where live.org_id = ${orgId}::uuid and live.deleted_at is null)`
  for (const { name: table, onOrganizationDeletion: rule } of rules) {
    if (typeof rule === "string" || rule.action !== "drain") continue
    const part = sql.literal(rule.onlyIf === undefined ? "" : `and ${rule.onlyIf}`)
    // Until there is nothing: a batch that another process shares is short, and may not be the last.
    let removed = batch
    while (removed > 0) {
      const rows = yield* sql`
        delete from ${sql(table)} where ctid in (
          select ctid from ${sql(table)} where org_id = ${orgId}::uuid ${part} and ${empty}
          limit ${batch}::int) returning 1`
      removed = rows.length
    }
  }
  yield* sql`
    delete from organization o where o.id = ${orgId}::uuid and o.deletion_requested_at is not null
      and not exists (select from resource r where r.org_id = o.id)`
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const announced = yield* announcements("svc_departure")
    // A round of many organizations may take long; one that is never answered must not be the last.
    const step = Effect.flatMap(answered("remove organizations", 600_000)(round), (leaving) =>
      leaving > 0 ? Effect.sleep(whileLeaving) : Effect.timeoutOption(Queue.take(announced), slowLook)
    )
    yield* Effect.forkScoped(Effect.forever(supervise("see to departing organizations", step)))
  })
)
