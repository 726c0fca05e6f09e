/**
 * The evaluation of the alerts of some organizations, as one statement: what is measured is held against each rule, states
 * move on, and what is to be told (events, deliveries, mails, history) is stored with the very change that it tells of. So
 * nothing fires twice, whoever evaluates, and whoever is killed while doing so.
 *
 * - One evaluates an organization at a time: its row of `alert_turn` is held until the statement's end, and says when the
 *   next round is.
 * - A change is written only to the version of the alert that it was decided by. Who decided by older rows writes nothing.
 * - All times are of the clock of the store. How long a condition holds is not the difference of two times, but the sum
 *   of what passed between rounds, of which no gap counts for more than a minute. So a clock that is set forward, or an
 *   hour in which nobody evaluated, fires nothing by itself, and one that is set back stops nothing.
 */
import type { Fragment } from "effect/sql/Statement"
import type { Sql } from "#src/store/Db.ts"
import { emissions } from "#src/webhooks/events.ts"
import { newestOf, outOfBounds, rules, watchable, worst } from "./measured.ts"

/** Between rounds of an organization: as often as is measured. */
const everySeconds = 15
/** How long an organization waits whose evaluation failed. */
const putOffSeconds = 60
/** What the time between two rounds counts for at most. */
const longestGapSeconds = 60
/** How long a condition has to be gone before its alert resolves: as long as it had to hold, but within these bounds. */
const shortestRecoverySeconds = 60
const longestRecoverySeconds = 900

/** Due, or put off further than it ever is, by a clock that was set back since. */
const isDue = (sql: Sql) =>
  sql`(due_at <= now() or due_at > now() + make_interval(secs => ${putOffSeconds}::int))`

/** Whose turn it is, with whether it is to be evaluated by itself. Reads a row for each organization with alerts. */
export const dueTurns = (sql: Sql, most: number) => sql<{ readonly orgId: string; readonly alone: boolean }>`
  select org_id as "orgId", alone from alert_turn where ${isDue(sql)} order by alone, due_at limit ${most}::int`

/** Milliseconds until the first turn; null: nobody has alerts. */
export const nextTurn = (sql: Sql) => sql<{ readonly next: number | null }>`
  select (extract(epoch from min(due_at) - now()) * 1000)::float8 as next from alert_turn`

/** The evaluation of an organization failed: it comes later, and from now on by itself, until that succeeds. */
export const putOff = (sql: Sql, orgId: string) => sql`
  update alert_turn set alone = true, due_at = now() + make_interval(secs => ${putOffSeconds}::int)
  where org_id = ${orgId}::uuid`

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
    insert into alert_mail (org_id, event_id, type, project_id, destinations, data)
    select t.org_id, t.event_id, t.type, t.project_id, c.destinations, t.data
    from told t cross join lateral (
      select array_agg(channel ->> 'destination' order by place) as destinations
      from jsonb_array_elements(t.config -> 'channels') with ordinality as c(channel, place)
      where channel ->> 'kind' = 'mail') c
    where c.destinations is not null
    returning pg_notify('svc_alert_mail', '')
  )`

/**
 * One round of `organizations`, of those whose turn it is: how many took theirs, and how many alerts changed and were told.
 * What each CTE does is said where it stands.
 */
export const evaluation = (sql: Sql, organizations: ReadonlyArray<string>): Fragment => sql`
  with turn as materialized (
    select org_id, least(greatest(extract(epoch from now() - looked_at), 0), ${longestGapSeconds}::int)::float8 as passed
    from alert_turn
    where org_id = any (${organizations}::uuid[]) and ${isDue(sql)}
    order by org_id for update skip locked
  ), taken as (
    update alert_turn t set looked_at = now(), due_at = now() + make_interval(secs => ${everySeconds}::int), alone = false
    from turn where t.org_id = turn.org_id
  ), watching as materialized (
    ${rules(sql, sql`turn join alert a on a.org_id = turn.org_id`)}
  ), ${worst(sql, "watching")},
  -- While it fires it is lost whether the condition holds, as long as the resource is there that it fires about and has
  -- no fresh value.
  seen as materialized (
    select a.*, turn.passed, coalesce(a.holds, false) as met, a.worst_uid is not null as any_fresh,
      coalesce(n.fresh, false) and n.holds as named_holds,
      case when n.fresh then n.value end as named_value, n.is_there and n.fresh is not true as named_lost,
      a.holds is not true and coalesce(n.is_there and n.fresh is not true, false) as unknown,
      a.resource_uid is not null and n.is_there is not true as is_gone,
      (a.config ->> 'enabled')::boolean as enabled, (a.config #>> '{condition,durationSeconds}')::float8 as duration
    from turn
    join worst a on a.org_id = turn.org_id
    left join lateral (
      select ${watchable(sql)} as is_there, v.value, v.fresh, ${outOfBounds(sql, "v.value")} as holds
      from resource r left join lateral (${newestOf(sql, "a.signal")}) v on true
      where a.state = 'firing' and r.org_id = a.org_id and r.uid = a.resource_uid) n on true
  ), counted as (
    select s.*, least(greatest(duration, ${shortestRecoverySeconds}::int), ${longestRecoverySeconds}::int) as recovery,
      case when state = 'pending' and met or state = 'firing' and not met and not unknown
        then counted_seconds + passed end as total
    from seen s
  ), decided as (
    select c.*,
      case when not enabled then 'ok'
        when met and (state = 'firing' or duration = 0 or state = 'pending' and total >= duration) then 'firing'
        when met then 'pending'
        when state = 'firing' and (unknown or total is null or total < recovery) then 'firing'
        when not any_fresh then 'no_data'
        else 'ok' end as next
    from counted c
  ), planned as materialized (
    select d.*,
      next = 'firing' and state <> 'firing' as fires, state = 'firing' and next <> 'firing' as resolves,
      case when next = 'firing' and state = 'firing' then incident_id when next = 'firing' then gen_random_uuid() end
        as next_incident,
      case when next = 'pending' or next = 'firing' and not met and not unknown then coalesce(total, 0) end
        as next_counted,
      case when next = 'firing' and not met and unknown then coalesce(data_lost_at, now()) end as next_lost,
      coalesce(silenced_until <= now(), false) as silence_ends,
      next = 'firing' and told_at is null and acknowledged_at is null
        and coalesce(silenced_until <= now(), true)
        and coalesce(last_told_at > now() or extract(epoch from now() - last_told_at)
          >= (config ->> 'cooldownSeconds')::float8, true) as tells_firing,
      -- What resolves was never told where that was kept back.
      state = 'firing' and next <> 'firing' and told_at is not null as tells_resolved,
      -- It goes on being about the resource that it fired about, as long as the condition holds for that or is unknown.
      next = 'firing' and met and not (state = 'firing' and coalesce(named_holds or named_lost, false)) as names_worst
    from decided d
  ), moved as (
    update alert a set
      version = a.version + 1,
      state = p.next, state_since = case when p.next = p.state then a.state_since else now() end,
      missed = p.next = 'no_data' and (p.missed or p.state <> 'no_data'),
      counted_seconds = p.next_counted, data_lost_at = p.next_lost, incident_id = p.next_incident,
      resource_uid = case when p.names_worst then p.worst_uid when p.next = 'firing' then a.resource_uid end,
      resource = case when p.names_worst then ${resourceOf(sql, "p.org_id", "p.worst_uid")}
        when p.next = 'firing' then a.resource end,
      value = case when p.names_worst then p.worst_value when p.next = 'firing' then a.value end,
      told_at = case when p.tells_firing then now() when p.next = 'firing' then a.told_at end,
      last_told_at = case when p.tells_firing then now() else a.last_told_at end,
      acknowledged_at = case when p.next = 'firing' then a.acknowledged_at end,
      acknowledged_by = case when p.next = 'firing' then a.acknowledged_by end,
      silenced_until = case when not p.silence_ends then a.silenced_until end,
      silenced_by = case when not p.silence_ends then a.silenced_by end,
      silence_reason = case when not p.silence_ends then a.silence_reason end
    from planned p
    where a.org_id = p.org_id and a.uid = p.uid and a.version = p.version
      and (p.next <> p.state or p.next_counted is distinct from p.counted_seconds
        or (p.next_lost is null) <> (p.data_lost_at is null) or p.tells_firing or p.silence_ends or p.names_worst)
    returning a.org_id, a.uid, a.project_id, a.name, a.config, a.threshold, p.state as before, a.state,
      p.fires, p.resolves, p.silence_ends, p.missed and p.any_fresh as is_back, p.data_lost_at as lost_before, a.data_lost_at as lost,
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
        when t.is_back and not t.fires then 'data_back' end
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
