/**
 * What projects may spend in a month, and what they have spent.
 *
 * Whatever costs something reserves the most that it can cost before it begins, and settles what it really cost when it
 * has ended. Under a hard stop a reservation is granted only while spent and reserved together stay within the cap: the
 * row of the month is the one place that all of them pass, so that any number of them at once never exceed it. A month
 * is one of the calendar in UTC, and what is reserved in a month is spent in it, whenever it ends.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SqlError from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { Db, inOrg, repeatable, type Sql, violatedUnique } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { announcement } from "./announcement.ts"
import { counted, inForce, marks } from "./spending.ts"

/** The budget does not allow it. Trying again helps once something has ended, the month is over or the cap is raised. */
class BudgetExhausted extends Schema.TaggedError<BudgetExhausted>()("BudgetExhausted", {
  message: Schema.String
}) {}

export interface Charge {
  readonly orgId: string
  readonly projectId: string
  /** Of what costs: the resource. */
  readonly uid: string
  readonly microUsd: number
}

export interface BudgetSettings {
  /** Null: none. */
  readonly monthlyCap: number | null
  readonly alertPercent: number | null
  readonly hardStop: boolean
}

/** Amounts are in millionths of a US dollar. */
export interface Budget extends BudgetSettings {
  /** `2026-11` */
  readonly month: string
  readonly spent: number
  readonly reserved: number
  /** Generation of the resource that is in force; 0: nobody has set one. */
  readonly revision: string
  /** The resource that is in force. */
  readonly uid: string | null
}

export interface Enforced extends BudgetSettings {
  readonly orgId: string
  readonly projectId: string
  /** Of the resource. It takes the place of another one, which is on its way out. */
  readonly uid: string
  /** Of the resource. What a later one says is not taken back. */
  readonly generation: number
  /** Of a reconcile. */
  readonly fence?: bigint
}

export class Budgets extends Context.Service<
  Budgets,
  {
    /**
     * Holds an amount for a resource that is about to be made. Repeating it changes nothing. A resource that is not
     * there some minutes later never came into being, and what was held for it is free again.
     */
    readonly reserve: (charge: Charge) => Effect.Effect<void, BudgetExhausted | StoreUnavailable>
    /**
     * What it came to in the end takes the place of what was held, and is never more: what took longer than was agreed
     * is no fault of who was promised a hard stop. Repeating it changes nothing.
     */
    readonly settle: (charge: Charge) => Effect.Effect<void, StoreUnavailable>
    readonly get: (orgId: string, projectId: string) => Effect.Effect<Budget, StoreUnavailable>
    /** From here on it is in force. False: a later one is, or a later reconcile was here. */
    readonly enforce: (budget: Enforced) => Effect.Effect<boolean, StoreUnavailable>
    /** Takes away what is in force of this resource. False: a later reconcile was here. */
    readonly forget: (
      budget: Required<Pick<Enforced, "orgId" | "projectId" | "uid" | "fence">>
    ) => Effect.Effect<boolean, StoreUnavailable>
  }
>()("svc/budgets/Budgets") {
  static readonly layer = Layer.effect(
    Budgets,
    Effect.gen(function* () {
      const { api, engine } = yield* Db

      const get = Effect.fn("Budgets.get")(function* (orgId: string, projectId: string) {
        const [row] = yield* repeatable(api<Budget>`
          select b.monthly_cap::float8 as "monthlyCap",
            case when b.org_id is null then ${defaults.alertPercent}::int else b.alert_percent end as "alertPercent",
            coalesce(b.hard_stop, ${defaults.hardStop}::boolean) as "hardStop",
            to_char(t.month, 'YYYY-MM') as month, coalesce(m.spent, 0)::float8 as spent,
            coalesce(m.reserved, 0)::float8 as reserved, coalesce(b.generation, 0)::text as revision,
            b.uid
          from (select ${thisMonth(api)} as month where ${inOrg(api, orgId)}) t
          left join project_budget b on b.org_id = ${orgId}::uuid and b.project_uid = ${projectId}::uuid
          left join budget_month m
            on m.org_id = ${orgId}::uuid and m.project_uid = ${projectId}::uuid and m.month = t.month`)
        return row ?? (yield* Effect.die(new Error("the budget's query answered no row")))
      })

      return Budgets.of({
        reserve: Effect.fn("Budgets.reserve")(function* (charge) {
          const granted = yield* repeatable(
            // Whoever reserved the same thing at this moment is found by the second look.
            Effect.retry(reserve(api, charge), {
              times: 1,
              while: (error) => SqlError.isSqlError(error) && violatedUnique(error) === "budget_entry_pkey"
            })
          )
          if (!granted) return yield* exhausted(yield* get(charge.orgId, charge.projectId), charge.microUsd)
        }),
        settle: Effect.fn("Budgets.settle")(function* (charge) {
          yield* repeatable(settle(engine, charge))
        }),
        get,
        enforce: Effect.fn("Budgets.enforce")(function* (budget) {
          return (yield* repeatable(enforce(api, budget))).length > 0
        }),
        forget: Effect.fn("Budgets.forget")(function* ({ orgId, projectId, uid, fence }) {
          const [row] = yield* repeatable(engine<{ readonly newer: boolean }>`
            with gone as (
              delete from project_budget
              where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and uid = ${uid}::uuid
                and fence <= ${fence}
            )
            select exists (select from project_budget where org_id = ${orgId}::uuid
              and project_uid = ${projectId}::uuid and uid = ${uid}::uuid and fence > ${fence}) as newer`)
          return row?.newer === false
        })
      })
    })
  )
}

/** Of a project whose budget nobody has set. */
export const defaults: BudgetSettings = { monthlyCap: null, alertPercent: 80, hardStop: false }

const thisMonth = (sql: Sql): Fragment => sql`date_trunc('month', now() at time zone 'UTC')::date`

const reserve = (sql: Sql, charge: Charge) => {
  const { orgId, projectId, uid, microUsd } = charge
  const gate = inOrg(sql, orgId)
  const most = sql`(select monthly_cap from budget where hard_stop)`
  return Effect.map(
    sql<{ readonly granted: boolean }>`
      with ${inForce(sql, charge)},
      known as materialized (
        select uid from budget_entry where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${gate}
      ), held as (
        insert into budget_month as m (org_id, project_uid, month, reserved)
        select ${orgId}::uuid, ${projectId}::uuid, ${thisMonth(sql)}, ${microUsd}::bigint
        where ${gate} and not exists (select from known) and (${most} is null or ${microUsd}::bigint <= ${most})
        on conflict (org_id, project_uid, month) do update set reserved = m.reserved + excluded.reserved
          where ${most} is null or m.spent + m.reserved + excluded.reserved <= ${most}
        returning month
      ), entered as (
        insert into budget_entry (org_id, uid, project_uid, month, reserved)
        select ${orgId}::uuid, ${uid}::uuid, ${projectId}::uuid, month, ${microUsd}::bigint from held where ${gate}
      )
      select exists (select from known) or exists (select from held) as granted`,
    ([row]) => row?.granted === true
  )
}

const settle = (sql: Sql, charge: Charge) => {
  const { orgId, projectId, uid, microUsd } = charge
  return sql`
    with ${inForce(sql, charge)},
    settled as (
      insert into budget_entry as e (org_id, uid, project_uid, month, reserved, spent, settled_at)
      values (${orgId}::uuid, ${uid}::uuid, ${projectId}::uuid, ${thisMonth(sql)}, 0, ${microUsd}::bigint, now())
      on conflict (org_id, uid) do update set spent = least(excluded.spent, e.reserved), settled_at = now()
        where e.settled_at is null
      returning e.month, e.reserved, e.spent
    ), ${counted(sql, charge, "settled")}, used as (
      insert into budget_usage as b (org_id, project_uid, day, uid, item, kind, name, spent)
      select ${orgId}::uuid, ${projectId}::uuid, (now() at time zone 'UTC')::date, ${projectId}::uuid, 'executions',
        'Execution', '', s.spent from settled s where s.spent > 0
      on conflict (org_id, project_uid, day, uid, item) do update set spent = b.spent + excluded.spent
    )
    select month from counted`
}

/** A cap that is lower than what was spent is one that was reached. */
const enforce = (sql: Sql, budget: Enforced) => {
  const { orgId, projectId, uid, monthlyCap, alertPercent, hardStop, generation, fence = null } = budget
  const gate = inOrg(sql, orgId)
  const told = announcement(sql, orgId, projectId)
  return sql`
    with budget as (
      insert into project_budget as b (org_id, project_uid, monthly_cap, alert_percent, hard_stop, uid, generation,
        fence)
      select ${orgId}::uuid, ${projectId}::uuid, ${monthlyCap}::bigint, ${alertPercent}::int, ${hardStop}::boolean,
        ${uid}::uuid, ${generation}::int, coalesce(${fence}::bigint, 0)
      where ${gate}
      on conflict (org_id, project_uid) do update set monthly_cap = excluded.monthly_cap,
        alert_percent = excluded.alert_percent, hard_stop = excluded.hard_stop, uid = excluded.uid,
        generation = excluded.generation, fence = greatest(b.fence, excluded.fence)
        where (b.uid is distinct from excluded.uid or b.generation <= excluded.generation)
          and (${fence}::bigint is null or b.fence <= excluded.fence)
      returning project_uid as id, monthly_cap, alert_percent, hard_stop
    ), counted as (
      update budget_month m set ${marks(told, sql`m.spent`, sql)}
      from budget b
      where m.org_id = ${orgId}::uuid and m.project_uid = b.id and m.month = ${thisMonth(sql)} and ${gate}
      returning m.month, m.spent, m.alert_id, m.exceeded_id
    ),
    ${told.emissions("counted")}
    select id from budget`
}

const exhausted = ({ month, monthlyCap, spent, reserved }: Budget, asked: number) => {
  const usd = (microUsd: number) => `$${(microUsd / 1_000_000).toFixed(6).replace(/0{1,4}$/, "")}`
  return new BudgetExhausted({
    message:
      `The project's budget of ${usd(monthlyCap ?? 0)} for ${month} does not allow it: ${usd(spent)} are spent and ` +
      `${usd(reserved)} reserved, and this may cost ${usd(asked)}. Raise the cap, or ask for less`
  })
}
