/** Writing down what reconciles came to: one statement for those that found nothing new, one for the others. */
import { type EngineEvent, priorityPenalty, type Recorded } from "#src/engine/WorkStore.ts"
import type { Sql } from "./Db.ts"
import { named, targetChanged, waitColumns, waitingOn, waitTypes } from "./wake-dependents.ts"
import { dueNow } from "./work-rows.ts"

/**
 * Nothing changed: only the queue entry is written, and nobody waits until the disk has it. Should a crash take it back, the
 * lease is there again until it ends, and then somebody looks once more.
 */
export const recordQuiet = (sql: Sql, results: ReadonlyArray<Recorded>) => sql<{ readonly uid: string }>`
  update work w set
    lease_token = null, lease_until = null, again = false, attempt = 0, last_error = null, waiting_on = null,
    due_at = case when w.again then now() else now() + (l.due_in + coalesce(l.kept, 0)) * interval '1 millisecond' end,
    rank = case when w.again then now() else now() + (l.ranked + coalesce(l.kept, 0)) * interval '1 millisecond' end,
    kept = l.kept is not null and not w.again
  from unnest(
    string_to_array(${results.map((result) => result.lease.orgId).join()}, ',')::uuid[],
    string_to_array(${results.map((result) => result.lease.uid).join()}, ',')::uuid[],
    string_to_array(${results.map((result) => result.lease.token).join()}, ',')::bigint[],
    string_to_array(${results.map((result) => Math.round(result.dueIn)).join()}, ',')::float8[],
    string_to_array(${results.map((result) => Math.round(result.dueIn) + priorityPenalty[result.priority]).join()}, ',')::float8[],
    string_to_array(${results.map((result) => result.keptForMs ?? "").join()}, ',', '')::float8[]
  ) as l(org_id, uid, token, due_in, ranked, kept)
  where w.org_id = l.org_id and w.uid = l.uid and w.lease_token = l.token
    and (select set_config('synchronous_commit', 'off', true)) is not null
  returning w.uid`

/**
 * Status, history, queue entry, the removal of what is gone and the waking of what waited, in one statement. Only
 * rows whose lease still holds take part; everything else follows from `fenced`. What no result of the batch asks for is
 * left out: of few results, to make such a statement ready takes Postgres longer than to run it.
 */
export const recordChanged = (sql: Sql, results: ReadonlyArray<Recorded>) => {
  const input = results.map((result, ord) => ({
    ord,
    org_id: result.lease.orgId,
    uid: result.lease.uid,
    token: String(result.lease.token),
    due_in: result.dueIn,
    penalty: priorityPenalty[result.priority],
    attempt: result.attempt,
    ...waitColumns(result.waitingOn),
    seen: result.waitingOn === null ? null : result.seen,
    last_error: result.lastError,
    handled: result.handledRetry,
    kept: result.keptForMs,
    status: result.change?.status ?? null,
    facts: result.change?.facts,
    phase: result.change?.phase,
    conditions: result.change?.conditions,
    differences: result.change?.differences,
    observed: result.change?.observedGeneration,
    settled: result.change?.settled,
    deleting: result.change?.deleting,
    gone: result.change?.gone
  }))
  const events = results.flatMap(
    (result, ord): ReadonlyArray<EventRow> =>
      (result.change?.events ?? []).map((event, position) => ({ ord, position, ...event }))
  )
  const has = {
    waits: results.some((result) => result.waitingOn !== null),
    gone: results.some((result) => result.change?.gone === true),
    events: events.length > 0
  }
  const nothing = sql``
  return sql<{ readonly uid: string }>`
    with input as materialized (
      select i.*, ${has.waits ? waitingOn(sql) : sql`null::uuid`} as waiting_on from jsonb_to_recordset(${sql.json(input)}::jsonb) as i(
        ord int, org_id uuid, uid uuid, token bigint, due_in float8, penalty float8, attempt int, ${waitTypes(sql)},
        seen pg_snapshot, last_error text, handled text, kept float8, status jsonb, facts jsonb, phase text, conditions jsonb, differences jsonb,
        observed int, settled boolean, deleting boolean, gone boolean)
    ),
    ${has.waits || has.gone ? judged(sql) : sql`judged as (select i.*, false as soon from input i),`}
    kept as (
      update work w set
        lease_token = null, lease_until = null, again = false, attempt = i.attempt, last_error = i.last_error,
        handled_retry = coalesce(i.handled, w.handled_retry),
        retry_token = case when w.retry_token = i.handled then null else w.retry_token end,
        waiting_on = i.waiting_on,
        waiting_for = case when i.waits_kind is not null then jsonb_build_object('kind', i.waits_kind,
          'projectId', i.waits_project, 'environment', i.waits_environment, 'name', i.waits_name) end,
        due_at = case when w.again or i.soon then now()
          else now() + (i.due_in + coalesce(i.kept, 0)) * interval '1 millisecond' end,
        rank = case when w.again or i.soon then now()
          else now() + (i.due_in + coalesce(i.kept, 0) + i.penalty) * interval '1 millisecond' end,
        kept = i.kept is not null and not w.again and not i.soon
      from judged i
      where w.org_id = i.org_id and w.uid = i.uid and w.lease_token = i.token
      returning w.org_id, w.uid
    ),
    ${has.gone ? removed(sql) : nothing}
    fenced as (select org_id, uid from kept ${has.gone ? sql`union all select org_id, uid from removed` : nothing}),
    changed as (
      update resource r set
        status = i.status, facts = r.facts || i.facts, conditions = i.conditions, differences = i.differences,
        observed_generation = i.observed, settled = i.settled,
        -- Deletion may have been asked for meanwhile; the next run, which is due already, knows of it.
        phase = case when r.deletion_requested_at is not null and not i.deleting then r.phase else i.phase end,
        phase_since = case when r.phase = i.phase or r.deletion_requested_at is not null and not i.deleting
          then r.phase_since else now() end,
        spec = case when i.gone then '{}' else r.spec end,
        deleted_at = case when i.gone then now() end,
        revision = nextval('resource_revision'), txid = pg_current_xact_id()
      from input i join fenced f on f.org_id = i.org_id and f.uid = i.uid
      where r.org_id = i.org_id and r.uid = i.uid
      returning r.org_id, r.uid, r.parent_uid, r.generation, i.ord, i.gone, ${named(sql, "r")} as named
    ),
    ${has.gone ? unsealed(sql) : nothing}
    -- Two lookups by an index each: with "or" between them it would be one for every organization there is.
    concerned as (
      select w.org_id, w.uid from changed c
      join work w on w.org_id = c.org_id and w.waiting_on = any(array[c.uid, c.named])
      ${has.gone ? sql`union select org_id, parent_uid from changed where gone and parent_uid is not null` : nothing}
    ),
    woken as (
      update work w set
        waiting_on = null, ${dueNow(sql)}
      from concerned c
      where w.org_id = c.org_id and w.uid = c.uid
        -- What this statement wrote already saw to itself; a stale result of the batch wrote nothing.
        and not exists (select from fenced f where f.org_id = w.org_id and f.uid = w.uid)
      returning w.uid
    ),
    ${has.events ? history(sql, events) : nothing}
    told as (
      select count(pg_notify('svc_change', org_id::text)) from (select distinct org_id from changed) orgs
      union all
      select count(pg_notify('svc_work', '')) from (select from woken limit 1) any_woken
    )
    select fenced.uid from fenced, (select count(*) from told) all_told`
}

/** One of the result `ord` of the batch, in the order in which they happened. */
type EventRow = EngineEvent & { readonly ord: number; readonly position: number }

const judged = (sql: Sql) => sql`
  -- What the results are of, once for the statement: asked for each of them it would be asked for each pair.
  own as materialized (
    select c.org_id, c.uid, c.parent_uid, i.gone, ${named(sql, "c")} as named
    from input i join resource c on c.org_id = i.org_id and c.uid = i.uid
  ),
  -- Materialized, or each use of "soon" would judge again.
  judged as materialized (
    select i.*,
      -- What it waits for changed since it was looked at, here or elsewhere, or a child of it is going.
      coalesce(${targetChanged(sql)}
        or (i.org_id, i.waiting_on) in (select org_id, uid from own)
        or (i.org_id, i.waiting_on) in (select org_id, named from own)
        or (i.org_id, i.uid) in (select org_id, parent_uid from own where gone and parent_uid is not null), false) as soon
    from input i where not gone
  ),`

const removed = (sql: Sql) => sql`
  removed as (
    delete from work w using input i
    where i.gone and w.org_id = i.org_id and w.uid = i.uid and w.lease_token = i.token
    returning w.org_id, w.uid
  ),`

const unsealed = (sql: Sql) => sql`
  unsealed as (
    delete from secret s using changed c where c.gone and s.org_id = c.org_id and s.uid = c.uid
  ),`

const history = (sql: Sql, events: ReadonlyArray<EventRow>) => sql`
  happened as (
    select c.org_id, c.uid, c.generation, e.position, e.type, e.reason, e.message
    from jsonb_to_recordset(${sql.json(events)}::jsonb) as e(ord int, position int, type text, reason text, message text)
    join changed c on c.ord = e.ord
  ),
  -- A repeat of the newest entry is counted instead of written again.
  folded as (
    update resource_event old set count = old.count + 1, last_at = now()
    from happened h
    where old.org_id = h.org_id and old.uid = h.uid and old.type = h.type and old.reason = h.reason
      and old.message = h.message
      and old.id = (select max(id) from resource_event n where n.org_id = h.org_id and n.uid = h.uid)
    returning old.uid, h.position
  ),
  history as (
    insert into resource_event (org_id, uid, type, reason, message, generation)
    select org_id, uid, type, reason, message, generation from happened h
    where not exists (select from folded f where f.uid = h.uid and f.position = h.position)
    order by h.uid, h.position
  ),`
