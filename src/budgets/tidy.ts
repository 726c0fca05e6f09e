/** Gives back what was reserved for something that never came into being, and forgets what was settled long ago. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { removeInBatches } from "#src/loops/retention.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"

/** Requests that make something end in seconds: what is not there by then never will be. */
const patienceSeconds = 600
/** A settlement that is repeated after so long would be counted twice. */
const rememberedDays = 90
const batch = 1_000

// Index: budget_entry_open. In the order of the months' rows, so that two processes do not wait for each other.
const orphans = (sql: Sql) => sql`
  with lost as (
    delete from budget_entry where ctid = any(array(
      select e.ctid from budget_entry e
      where e.settled_at is null and e.reserved_at < now() - make_interval(secs => ${patienceSeconds}::int)
        and not exists (select from resource r where r.org_id = e.org_id and r.uid = e.uid)
      order by e.reserved_at limit ${batch}::int for update skip locked))
    returning org_id, project_uid, month, reserved
  ), sums as (
    select org_id, project_uid, month, sum(reserved)::bigint as reserved from lost group by 1, 2, 3
  ), months as materialized (
    select m.org_id, m.project_uid, m.month from budget_month m
    join sums s on s.org_id = m.org_id and s.project_uid = m.project_uid and s.month = m.month
    order by 1, 2, 3 for update of m
  ), given_back as (
    update budget_month m set reserved = m.reserved - s.reserved from months l join sums s
      on s.org_id = l.org_id and s.project_uid = l.project_uid and s.month = l.month
    where m.org_id = l.org_id and m.project_uid = l.project_uid and m.month = l.month
  )
  select 1 from lost`

// Index: budget_entry_age.
const settled = (sql: Sql) => sql`
  delete from budget_entry where ctid = any(array(
    select ctid from budget_entry where settled_at < now() - make_interval(days => ${rememberedDays}::int)
    limit ${batch}::int)) returning 1`

/** One round. Several processes may do it at once; each reservation is given back once. */
export const tidy = Effect.flatMap(Db, ({ engine: sql }) =>
  removeInBatches("tidy budgets", batch, [orphans(sql), settled(sql)].map(repeatable))
)

export const layer = Layer.effectDiscard(periodic({ does: "tidy budgets", every: "1 minute" }, tidy))
