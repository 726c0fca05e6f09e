/** When each project's maintenance runs next. The reconciler puts a schedule in force, the planner makes its runs. */
import { randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type { MaintenanceSchedule } from "#schemas/maintenance.ts"
import { Db, orUnavailable, repeatable, type Sql } from "#src/store/Db.ts"
import { isPaused } from "#src/store/pauses.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { channel } from "./options.ts"

export interface Ref {
  readonly orgId: string
  readonly uid: string
}

export interface InForce {
  /** Null: it does not run by itself. */
  readonly schedule: MaintenanceSchedule | null
  readonly nextAt: Date | null
}

/** Schedules that one statement plans. */
const most = 200

export class Schedules extends Context.Service<
  Schedules,
  {
    readonly inForce: (ref: Ref) => Effect.Effect<Option.Option<InForce>, StoreUnavailable>
    /**
     * Puts a schedule in force. One that is new runs at once for the first time; one that changed keeps its next time if
     * that comes sooner. False: a later reconcile was here, and nothing was done.
     */
    readonly put: (
      ref: Ref & { readonly schedule: MaintenanceSchedule | null; readonly fence: bigint }
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Whether anything is left of the maintenance. */
    readonly remains: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Takes away the schedule and all that was found and done. False: a later reconcile was here, and nothing was done. */
    readonly remove: (ref: Ref & { readonly fence: bigint }) => Effect.Effect<boolean, StoreUnavailable>
    /** Makes the runs that are due, and answers how many schedules it looked at. Times that were missed are one run. */
    readonly plan: Effect.Effect<number, StoreUnavailable>
  }
>()("svc/maintenance/Schedules") {
  static readonly layer = Layer.effect(
    Schedules,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      return Schedules.of({
        inForce: Effect.fn("Schedules.inForce")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<InForce>`
            select schedule, next_at as "nextAt" from maintenance_schedule
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          return Option.fromUndefinedOr(row)
        }),
        put: Effect.fn("Schedules.put")(function* ({ orgId, uid, schedule, fence }) {
          const rows = yield* orUnavailable(sql`
            insert into maintenance_schedule as s (org_id, uid, schedule, next_at, fence)
            values (${orgId}::uuid, ${uid}::uuid, ${schedule}::text,
              case when ${schedule}::text is not null then now() end, ${fence})
            on conflict (org_id, uid) do update set schedule = excluded.schedule, fence = excluded.fence,
              next_at = case when excluded.schedule is null then null
                when s.schedule is null then excluded.next_at
                else least(s.next_at, now() + ${spanOf(sql, "excluded.schedule")}) end
            where s.fence <= excluded.fence
            returning pg_notify(${channel}, 'plan')`)
          return rows.length > 0
        }),
        remains: Effect.fn("Schedules.remains")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<{ readonly any: boolean }>`
            select exists (select from maintenance_schedule where org_id = ${orgId}::uuid and uid = ${uid}::uuid)
              or exists (select from maintenance_run where org_id = ${orgId}::uuid and maintenance_uid = ${uid}::uuid)
              or exists (select from maintenance_finding where org_id = ${orgId}::uuid and maintenance_uid = ${uid}::uuid)
              or exists (select from maintenance_action where org_id = ${orgId}::uuid and maintenance_uid = ${uid}::uuid)
              as any`)
          return row?.any === true
        }),
        // Without a run nobody stores findings or actions any more: runs go first. There are some thousand rows at most.
        remove: Effect.fn("Schedules.remove")(function* ({ orgId, uid, fence }) {
          const [row] = yield* repeatable(sql<{ readonly newer: boolean }>`
            with gone as (
              delete from maintenance_schedule where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}
            )
            select exists (select from maintenance_schedule
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence > ${fence}) as newer`)
          if (row?.newer !== false) return false
          for (const table of ["maintenance_run", "maintenance_action", "maintenance_finding"]) {
            yield* repeatable(
              sql`delete from ${sql(table)} where org_id = ${orgId}::uuid and maintenance_uid = ${uid}::uuid`
            )
          }
          return true
        }),
        // Index: maintenance_schedule_due. A project that is paused runs when the pause is over.
        plan: Effect.suspend(() => {
          const ids = Array.from({ length: most }, () => randomUUIDv7())
          return Effect.map(
            repeatable(sql<{ readonly looked: number }>`
              with due as materialized (
                select s.org_id, s.uid, s.schedule from maintenance_schedule s
                join resource r on r.org_id = s.org_id and r.uid = s.uid
                where s.next_at <= now() and r.deletion_requested_at is null and not ${isPaused(sql)}
                order by s.next_at limit ${most}::int for update of s skip locked
              ), numbered as (
                select *, row_number() over () as ord from due
              ), made as (
                insert into maintenance_run (org_id, id, maintenance_uid, trigger)
                select n.org_id, i.id::uuid, n.uid, 'schedule' from numbered n
                join jsonb_array_elements_text(${sql.json(ids)}::jsonb) with ordinality as i(id, ord) using (ord)
                on conflict (org_id, maintenance_uid) where finished_at is null do nothing
                returning id
              ), planned as (
                -- A little apart, so that projects which were set up together do not stay together.
                update maintenance_schedule s
                set next_at = now() + ${spanOf(sql, "s.schedule")} * (0.97 + 0.03 * random())
                from due d where s.org_id = d.org_id and s.uid = d.uid
              )
              select (select count(*) from due)::int as looked,
                case when exists (select from made) then pg_notify(${channel}, 'begin') end`),
            ([row]) => row?.looked ?? 0
          )
        })
      })
    })
  )
}

const spanOf = (sql: Sql, column: string) =>
  sql.literal(`case ${column} when 'hourly' then interval '1 hour' when 'daily' then interval '1 day'
    else interval '7 days' end`)
