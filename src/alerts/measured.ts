/**
 * What is measured of the resources that alerts watch, looked up once for all alerts of a project with the same signal and
 * the same scope. So what a round reads grows with the resources and not with the alerts times the resources: of a
 * resource each signal at most three times, for the project, for its environment and for itself.
 */
import type { Fragment } from "effect/sql/Statement"
import { scopeKinds } from "#schemas/alert.ts"
import { measurements, signalNames } from "#schemas/signal.ts"
import type { Sql } from "#src/store/Db.ts"

/** A value that is older is none: six looks that did not come. */
export const freshSeconds = 90

/** Alerts with the parts of their rules that values are looked up by: no signal where they are switched off. */
export const rules = (sql: Sql, alerts: Fragment): Fragment => sql`
  select a.*, case when (a.config ->> 'enabled')::boolean then a.config #>> '{condition,signal}' end as signal, a.config #>> '{condition,operator}' as operator,
    a.config -> 'scope' as scope
  from ${alerts}`

/** Whether `value` is out of bounds, by `operator` and `threshold` of the row `a`. */
export const outOfBounds = (sql: Sql, value: string): Fragment => {
  const v = sql.literal(value)
  return sql`case a.operator when 'gt' then ${v} > a.threshold when 'gte' then ${v} >= a.threshold
    when 'lt' then ${v} < a.threshold when 'lte' then ${v} <= a.threshold else ${v} = a.threshold end`
}

/** Whether the resource `r` is there to be watched: what is being deleted is not, nor an execution that has ended. */
export const watchable = (sql: Sql): Fragment => sql`r.deletion_requested_at is null and r.deleted_at is null
  and not (r.kind = 'Execution' and r.status ->> 'finishedAt' is not null)`

/**
 * The newest value that the resource `r` has of a signal, however old: one row of value, at and fresh, or none. The limit
 * keeps it a look-up by key. Index: metric_now_pkey.
 */
export const newestOf = (sql: Sql, signal: string, gate: Fragment = sql`true`): Fragment => sql`
  select (m.values -> ${sql.literal(signal)})::float8 as value, m.at,
    m.at between now() - make_interval(secs => ${freshSeconds}::int)
      and now() + make_interval(secs => ${freshSeconds}::int) as fresh
  from metric_now m
  where m.org_id = r.org_id and m.uid = r.uid and m.values ? ${sql.literal(signal)} and ${gate}
  order by m.at desc limit 1`

const pairs = (sql: Sql, rows: ReadonlyArray<Fragment>): Fragment => sql`${sql.join(", ", false)(rows)}`

/**
 * CTEs, of which the last, `worst`, has each alert of `rules` (a CTE of {@link rules}) with worst_uid, worst_value, worst_at
 * and holds, of the resource with a fresh value that is the furthest out of bounds, or null where none has one. Equal ones
 * are ordered by uid. It keeps all columns, since the planner takes it for one row once it is joined again. Index:
 * resource_by_place.
 */
export const worst = (sql: Sql, rules: string, gate: Fragment = sql`true`): Fragment => sql`
  watched as materialized (
    select w.*, k.kinds, w.scope ->> 'environment' as environment, n.named
    from (select distinct org_id, project_id, signal, scope from ${sql(rules)}) w
    join (values ${pairs(
      sql,
      signalNames.map((name) => sql`(${name}::text, ${measurements[name].kinds}::text[])`)
    )}) as k(signal, kinds) on k.signal = w.signal
    cross join lateral (
      select coalesce(jsonb_agg(jsonb_build_object('kind', f.kind, 'name', w.scope ->> f.field)), '[]') as named
      from (values ${pairs(
        sql,
        Object.entries(scopeKinds).map(([field, kind]) => sql`(${field}::text, ${kind}::text)`)
      )}) as f(field, kind)
      where w.scope ->> f.field is not null) n
  ), seen_values as materialized (
    select w.org_id, w.project_id, w.signal, w.scope, array_agg(v.value order by v.value, r.uid) as values,
      array_agg(r.uid order by v.value, r.uid) as uids, array_agg(v.at order by v.value, r.uid) as ats
    from watched w
    cross join lateral (
      select r.org_id, r.uid from resource r
      where w.named = '[]' and w.environment is null and r.org_id = w.org_id and r.project_id = w.project_id
        and r.kind = any (w.kinds) and ${watchable(sql)} and ${gate}
      union all
      select r.org_id, r.uid from resource r
      where w.named = '[]' and r.org_id = w.org_id and r.project_id = w.project_id
        and r.kind = any (w.kinds) and r.environment = w.environment and ${watchable(sql)} and ${gate}
      union all
      select r.org_id, r.uid from resource r
      where w.named = '[]' and r.org_id = w.org_id and r.project_id = w.project_id
        and r.kind = any (w.kinds) and r.kind = 'Environment' and r.name = w.environment and ${watchable(sql)} and ${gate}
      union all
      select r.org_id, r.uid from jsonb_to_recordset(w.named) as n(kind text, name text)
      join resource r on r.org_id = w.org_id and r.project_id = w.project_id and r.kind = n.kind
        and r.environment = w.environment and r.name = n.name and ${watchable(sql)} and ${gate}
    ) r
    cross join lateral (${newestOf(sql, "w.signal", gate)}) v
    where v.fresh and v.value is not null
    group by w.org_id, w.project_id, w.signal, w.scope
  ), extremes as materialized (
    select s.*, array_position(s.values, s.values[cardinality(s.values)]) as highest from seen_values s
  ), worst as materialized (
    select a.*, e.uids[p.place] as worst_uid, e.values[p.place] as worst_value, e.ats[p.place] as worst_at,
      ${outOfBounds(sql, "e.values[p.place]")} as holds
    from ${sql(rules)} a
    left join extremes e on e.org_id = a.org_id and e.project_id = a.project_id and e.signal = a.signal and e.scope = a.scope
    cross join lateral (
      select case when a.operator in ('gt', 'gte') then e.highest when a.operator in ('lt', 'lte') then 1
        else coalesce(array_position(e.values, a.threshold), 1) end as place) p
  )`
