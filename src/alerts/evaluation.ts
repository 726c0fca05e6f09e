/**
 * The evaluation of all alerts, as one statement: what is measured is held against each rule, states move on, and what is
 * to be told (events, deliveries, mails, history) is stored with the very change that it tells of. So nothing fires twice,
 * whoever evaluates, and whoever is killed while doing so.
 *
 * - One evaluates at a time: the row of `alert_turn` is held until the statement's end, and says when the next round is.
 * - A change is written only to the version of the alert that it was decided by. Who decided by older rows writes nothing.
 * - All times are of the clock of the store. How long a condition holds is not the difference of two times, but the sum
 *   of what passed between rounds, of which no gap counts for more than a minute. So a clock that is set forward, or an
 *   hour in which nobody evaluated, fires nothing by itself, and one that is set back stops nothing.
 */
import type { Fragment } from "effect/sql/Statement"
import { scopeKinds } from "#schemas/alert.ts"
import type { Sql } from "#src/store/Db.ts"
import { emissions } from "#src/webhooks/events.ts"

/** Between rounds: as often as is measured. */
export const everySeconds = 15
/** A value that is older is none: six looks that did not come. */
export const freshSeconds = 90
/** What the time between two rounds counts for at most. */
const longestGapSeconds = 60
/** How long a condition has to be gone before its alert resolves: as long as it had to hold, but within these bounds. */
const shortestRecoverySeconds = 60
const longestRecoverySeconds = 900

/** Alerts with the parts of their rules that every resource is held against, read once for each alert. */
export const rules = (sql: Sql, alerts: Fragment): Fragment => sql`
  select a.*, a.config #>> '{condition,signal}' as signal, a.config #>> '{condition,operator}' as operator,
    a.config #>> '{scope,environment}' as environment, n.names
  from ${alerts} cross join lateral (
    select array_agg(w.kind || '/' || (a.config #>> array['scope', w.field])) as names
    from (values ${sql.join(
      ", ",
      false
    )(
      Object.entries(scopeKinds).map(([field, kind]) => sql`(${field}::text, ${kind}::text)`)
    )}) as w(field, kind)
    where a.config #>> array['scope', w.field] is not null) n`

/**
 * What was last measured of every resource that alerts watch: rows of org_id, alert_uid, resource_uid, value, at, fresh,
 * holds, rank (the lower the worse) and named (whether the alert fires about it). `rules` names a CTE of {@link rules}.
 * Indexes: resource_by_place, metric_now_pkey.
 */
export const measured = (sql: Sql, rules: string, gate: Fragment = sql`true`): Fragment => sql`
  select a.org_id, a.uid as alert_uid, r.uid as resource_uid, v.value, m.at, r.uid = a.resource_uid as named,
    m.at between now() - make_interval(secs => ${freshSeconds}::int)
      and now() + make_interval(secs => ${freshSeconds}::int) as fresh,
    case a.operator when 'gt' then v.value > a.threshold when 'gte' then v.value >= a.threshold
      when 'lt' then v.value < a.threshold when 'lte' then v.value <= a.threshold
      else v.value = a.threshold end as holds,
    case when a.operator in ('gt', 'gte') then -v.value when a.operator in ('lt', 'lte') then v.value end as rank
  from ${sql(rules)} a
  join (
    select *, case when kind = 'Environment' then name else environment end as place, kind || '/' || name as named
    from resource where deletion_requested_at is null and deleted_at is null and project_id is not null and ${gate}
  ) r on r.org_id = a.org_id and r.project_id = a.project_id
    and (a.environment is null or r.place = a.environment) and (a.names is null or r.named = any (a.names))
  join metric_now m on m.org_id = r.org_id and m.uid = r.uid
  cross join lateral (select (m.values -> a.signal)::float8 as value) v
  where v.value is not null and ${gate}`

/** A resource as alerts tell of it. */
export const resourceOf = (sql: Sql, orgId: string, uid: string): Fragment => sql`(
  select jsonb_build_object('id', r.uid, 'kind', r.kind, 'name', r.name,
    'environment', case when r.kind = 'Environment' then r.name else r.environment end)
  from resource r where r.org_id = ${sql.literal(orgId)} and r.uid = ${sql.literal(uid)})`

/** What webhooks and mails are told, of a row `t` of an alert with the columns that it had or gets. */
const dataOf = (sql: Sql) => sql`jsonb_build_object('alertId', t.uid, 'name', t.name,
  'severity', t.config ->> 'severity', 'incidentId', t.told_incident, 'signal', t.config #>> '{condition,signal}',
  'operator', t.config #>> '{condition,operator}', 'threshold', t.threshold, 'value', t.told_value,
  'resource', t.told_resource, 'reason', t.reason)`

/** CTEs that store events, deliveries and mails for each row of the CTE `told`, as {@link toldColumns} makes them. */
const announcement = (sql: Sql): Fragment => sql`
  told_by_webhook as (
    select * from told where config -> 'channels' @> '[{"kind":"webhook"}]'
  ),
  ${emissions(sql, "told_by_webhook")},
  mails as (
    insert into alert_mail (org_id, event_id, type, project_id, destination, data)
    select t.org_id, t.event_id, t.type, t.project_id, c.channel ->> 'destination', t.data
    from told t cross join jsonb_array_elements(t.config -> 'channels') as c(channel)
    where c.channel ->> 'kind' = 'mail'
  )`

/**
 * One round, unless it is nobody's turn: rows of each change of state. What each CTE does is said where it stands.
 */
export const evaluation = (sql: Sql): Fragment => sql`
  -- The turn: due, or put off further than it ever is, by a clock that was set back since.
  with turn as materialized (
    select least(greatest(extract(epoch from now() - looked_at), 0), ${longestGapSeconds}::int)::float8 as passed
    from alert_turn
    where due_at <= now() or due_at > now() + make_interval(secs => ${everySeconds}::int)
    for update skip locked
  ), taken as (
    update alert_turn set looked_at = now(), due_at = now() + make_interval(secs => ${everySeconds}::int)
    where exists (select from turn)
  ), watching as materialized (
    ${rules(sql, sql`turn cross join alert a`)} where (a.config ->> 'enabled')::boolean
  ), measured as materialized (${measured(sql, "watching")}),
  looked as (
    select org_id, alert_uid, bool_or(fresh) as any_fresh, bool_or(fresh and holds) as holds, bool_or(holds) as held_last,
      bool_or(named and fresh) as known, bool_or(named and fresh and holds) as named_holds,
      max(value) filter (where named and fresh) as named_value
    from measured group by org_id, alert_uid
  ),
  -- While it fires the last value of a resource counts however old it is, as long as the resource is there.
  seen as materialized (
    select a.*, turn.passed, l.named_value, coalesce(l.named_holds, false) as named_holds,
      (a.config ->> 'enabled')::boolean as enabled, (a.config #>> '{condition,durationSeconds}')::float8 as duration,
      coalesce(l.any_fresh, false) as any_fresh, coalesce(l.holds, false) as holds,
      coalesce(l.holds, false) is false and (coalesce(l.held_last, false) or gone.is_there and l.known is not true)
        as unknown,
      a.resource_uid is not null and not gone.is_there as is_gone
    from turn cross join alert a
    left join looked l on l.org_id = a.org_id and l.alert_uid = a.uid
    cross join lateral (
      select a.state = 'firing' and exists (
        select from resource r where r.org_id = a.org_id and r.uid = a.resource_uid
          and r.deletion_requested_at is null and r.deleted_at is null) as is_there) gone
  ), counted as (
    select s.*, least(greatest(duration, ${shortestRecoverySeconds}::int), ${longestRecoverySeconds}::int) as recovery,
      case when state = 'pending' and holds or state = 'firing' and not holds and not unknown
        then counted_seconds + passed end as total
    from seen s
  ), decided as (
    select c.*,
      case when not enabled then 'ok'
        when holds and (state = 'firing' or duration = 0 or state = 'pending' and total >= duration) then 'firing'
        when holds then 'pending'
        when state = 'firing' and (unknown or total is null or total < recovery) then 'firing'
        when not any_fresh then 'no_data'
        else 'ok' end as next
    from counted c
  ), planned as materialized (
    select d.*,
      next = 'firing' and state <> 'firing' as fires, state = 'firing' and next <> 'firing' as resolves,
      case when next = 'firing' and state = 'firing' then incident_id when next = 'firing' then gen_random_uuid() end
        as next_incident,
      case when next = 'pending' or next = 'firing' and not holds and not unknown then coalesce(total, 0) end
        as next_counted,
      case when next = 'firing' and not holds and unknown then coalesce(data_lost_at, now()) end as next_lost,
      coalesce(silenced_until <= now(), false) as silence_ends,
      next = 'firing' and told_at is null and acknowledged_at is null
        and coalesce(silenced_until <= now(), true)
        and coalesce(last_told_at > now() or extract(epoch from now() - last_told_at)
          >= (config ->> 'cooldownSeconds')::float8, true) as tells_firing,
      -- What resolves was never told where that was kept back.
      state = 'firing' and next <> 'firing' and told_at is not null as tells_resolved,
      -- It goes on being about the resource that it fired about, as long as the condition holds for that.
      next = 'firing' and holds and not (state = 'firing' and named_holds) as names_worst
    from decided d
  ), worst as (
    select distinct on (m.org_id, m.alert_uid) m.org_id, m.alert_uid, m.resource_uid, m.value
    from planned p join measured m on m.org_id = p.org_id and m.alert_uid = p.uid
    where p.names_worst and m.fresh and m.holds
    order by m.org_id, m.alert_uid, m.rank, m.resource_uid
  ), moved as (
    update alert a set
      version = a.version + 1,
      state = p.next, state_since = case when p.next = p.state then a.state_since else now() end,
      counted_seconds = p.next_counted, data_lost_at = p.next_lost, incident_id = p.next_incident,
      resource_uid = case when p.names_worst then w.resource_uid when p.next = 'firing' then a.resource_uid end,
      resource = case when p.names_worst then ${resourceOf(sql, "w.org_id", "w.resource_uid")}
        when p.next = 'firing' then a.resource end,
      value = case when p.names_worst then w.value when p.next = 'firing' then a.value end,
      told_at = case when p.tells_firing then now() when p.next = 'firing' then a.told_at end,
      last_told_at = case when p.tells_firing then now() else a.last_told_at end,
      acknowledged_at = case when p.next = 'firing' then a.acknowledged_at end,
      acknowledged_by = case when p.next = 'firing' then a.acknowledged_by end,
      silenced_until = case when not p.silence_ends then a.silenced_until end,
      silenced_by = case when not p.silence_ends then a.silenced_by end,
      silence_reason = case when not p.silence_ends then a.silence_reason end
    from planned p left join worst w on w.org_id = p.org_id and w.alert_uid = p.uid
    where a.org_id = p.org_id and a.uid = p.uid and a.version = p.version
      and (p.next <> p.state or p.next_counted is distinct from p.counted_seconds
        or (p.next_lost is null) <> (p.data_lost_at is null) or p.tells_firing or p.silence_ends or p.names_worst)
    returning a.org_id, a.uid, a.project_id, a.name, a.config, a.threshold, p.state as before, a.state,
      p.fires, p.resolves, p.silence_ends, p.data_lost_at as lost_before, a.data_lost_at as lost,
      coalesce(a.incident_id, p.incident_id) as told_incident,
      case when p.resolves then p.named_value else a.value end as told_value,
      coalesce(a.resource, p.resource) as told_resource,
      case when p.tells_firing or p.tells_resolved then gen_random_uuid() end as event_id,
      case when p.resolves then 'alert.resolved' else 'alert.firing' end as type,
      case when not p.resolves then null when not p.enabled then 'disabled' when p.is_gone then 'resource_gone'
        else 'cleared' end as reason
  ), told as (
    select t.*, ${dataOf(sql)} as data from moved t where t.event_id is not null
  ),
  ${announcement(sql)},
  remembered as (
    insert into alert_history (org_id, alert_uid, change, value, threshold, resource, incident_id, reason, event_id)
    select t.org_id, t.uid, c.change, t.told_value, t.threshold, t.told_resource,
      case when c.change in ('firing', 'resolved', 'notified', 'data_lost', 'data_back') then t.told_incident end,
      case when c.change = 'resolved' then t.reason end,
      case when c.change in ('firing', 'resolved', 'notified') then t.event_id end
    from moved t cross join lateral unnest(array[
      case when t.silence_ends then 'silence_ended' end,
      case when t.fires then 'firing' when t.resolves then 'resolved'
        when t.event_id is not null then 'notified' end,
      case when t.lost_before is null and t.lost is not null then 'data_lost'
        when t.lost_before is not null and t.lost is null and t.state = 'firing' then 'data_back' end,
      case when t.state = 'no_data' and t.before <> 'no_data' then 'no_data'
        when t.before = 'no_data' and t.state <> 'no_data' and not t.fires then 'data_back' end
    ]) as c(change)
    where c.change is not null
  )
  select (select count(*) from turn)::int as rounds, (select count(*) from moved)::int as moved,
    (select count(*) from told)::int as told`

/**
 * Takes an alert out of force, with its state and history: who was told that it fires is told that it is over. One row
 * with `newer`: whether a later run has put it in force, and nothing was done.
 */
export const removal = (
  sql: Sql,
  { orgId, uid, fence }: { readonly orgId: string; readonly uid: string; readonly fence: bigint }
): Fragment => sql`
  with t as (
    delete from alert where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}
    returning *, gen_random_uuid() as event_id, 'alert.resolved' as type, 'deleted' as reason,
      incident_id as told_incident, value as told_value, resource as told_resource
  ), told as (
    select t.*, ${dataOf(sql)} as data from t where t.told_at is not null
  ),
  ${announcement(sql)}
  select exists (select from alert
    where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence > ${fence}) as newer`
