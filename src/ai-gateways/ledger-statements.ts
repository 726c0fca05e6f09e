/**
 * The statements of the ledger: each takes many calls of one gateway. All that reserve or settle pass the row of the
 * gateway's month, whose lock makes the sums exact for any number of processes.
 */
import { hardStopReached } from "#src/budgets/hard-stop.ts"
import { inOrg, type Sql } from "#src/store/Db.ts"

/** What is to be reserved. */
export interface Asked {
  readonly id: string
  readonly keyId: string | null
  readonly model: string
  readonly amount: number
  /** The process that makes the call. */
  readonly holder: string
}

/** What a call came to. */
export interface Settled {
  readonly id: string
  readonly cost: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly estimated: boolean
  readonly status: number | null
  readonly upstream: string | null
  readonly latencyMs: number | null
  /** False: the call was not made, and what it reserved is given back. */
  readonly made: boolean
}

export const today = (sql: Sql) => sql`(now() at time zone 'UTC')::date`
export const thisMonth = (sql: Sql) => sql`date_trunc('month', now() at time zone 'UTC')::date`
/** Of the resource `r`, in billionths. */
export const capOf = (sql: Sql) => sql`round((r.spec->>'monthlyBudgetUsd')::numeric * 1000000000)`
/** The key that stands for the tokens of apps. */
export const noKey = "00000000-0000-0000-0000-000000000000"

/** A month in which something was settled or is to be reserved, with what was settled now and without what was granted. */
export interface EnteredRow {
  /** False: the gateway is gone, and nothing was granted. */
  readonly live: boolean
  /** The project's budget stops what would cost more, and nothing was granted now. */
  readonly stopped: boolean
  /** Its first day; null: there is none. */
  readonly month: string | null
  /** In which calls are reserved now. */
  readonly current: boolean
  readonly settled: boolean
  readonly cap: number
  readonly spent: number
  readonly reserved: number
  readonly alerted: boolean
  readonly exceeded: boolean
  /** What was granted, now or by an earlier try of the statement. */
  readonly granted: ReadonlyArray<string>
  /** What was granted now, in sum. */
  readonly taken: number
}

/**
 * Settles calls, and then reserves others, under one lock and with one commit: their calls wait half as long as they
 * would for two.
 *
 * What calls came to takes the place of what they reserved, and is never more. A call without a reservation was settled
 * already. What is asked is granted in the order of arrival as far as it fits; what follows a call that did not fit may
 * fit by itself, which another look tells. No row: there is no gateway. No current month: nothing was reserved in it yet,
 * see `beginMonth`. Repeating all this changes nothing.
 */
export const enter = (
  sql: Sql,
  orgId: string,
  gateway: string,
  settled: ReadonlyArray<Settled>,
  asked: ReadonlyArray<Asked>
) => {
  const gate = inOrg(sql, orgId)
  const settledRows = settled.map((call) => ({
    id: call.id,
    cost: call.cost,
    input_tokens: call.inputTokens,
    output_tokens: call.outputTokens,
    estimated: call.estimated,
    status: call.status,
    upstream: call.upstream,
    latency_ms: call.latencyMs,
    made: call.made
  }))
  const askedRows = asked.map(({ id, keyId, model, amount, holder }, ord) => ({
    id,
    gateway_key: keyId,
    model,
    amount,
    holder,
    ord
  }))
  return sql<EnteredRow>`
    with settled as materialized (
      select * from jsonb_to_recordset(${sql.json(settledRows)}::jsonb) as i(id uuid, cost bigint, input_tokens bigint,
        output_tokens bigint, estimated boolean, status int, upstream text, latency_ms int, made boolean)
    ),
    asked as materialized (
      select * from jsonb_to_recordset(${sql.json(askedRows)}::jsonb)
        as i(id uuid, gateway_key uuid, model text, amount bigint, holder uuid, ord int)
    ),
    gateway as materialized (
      select ${capOf(sql)} as cap, r.deletion_requested_at is null as live,
        ${hardStopReached(sql, orgId, sql`r.project_id`)} as stopped
      from resource r
      where r.org_id = ${orgId}::uuid and r.uid = ${gateway}::uuid and r.kind = 'AiGateway' and ${gate}
    ),
    ended as (
      delete from ai_gateway_reservation r using settled i
      where r.org_id = ${orgId}::uuid and r.id = i.id and r.gateway_uid = ${gateway}::uuid and ${gate}
      returning r.id, r.gateway_key, r.model, r.day, r.amount, i.made, i.estimated, i.status, i.upstream, i.latency_ms,
        i.input_tokens, i.output_tokens, case when i.made then least(i.cost, r.amount) else 0 end as cost
    ),
    sums as materialized (
      select date_trunc('month', day)::date as month, sum(amount)::bigint as amount, sum(cost)::bigint as cost,
        count(*) filter (where made) as requests, coalesce(sum(input_tokens) filter (where made), 0) as input_tokens,
        coalesce(sum(output_tokens) filter (where made), 0) as output_tokens
      from ended group by 1
    ),
    -- In order, so that two processes that settle at the turn of a month do not wait for each other in a circle.
    locked as materialized (
      select m.month, m.spent, m.reserved, m.alerted_at, m.exceeded_at from ai_gateway_month m
      where m.org_id = ${orgId}::uuid and m.gateway_uid = ${gateway}::uuid and ${gate}
        and (m.month in (select s.month from sums s)
          or m.month = ${thisMonth(sql)} and exists (select from asked) and exists (select from gateway g where g.live))
      order by m.month for update
    ),
    months as materialized (
      select l.month, l.month = ${thisMonth(sql)} as current, s.month is not null as settled,
        l.spent + coalesce(s.cost, 0) as spent, l.reserved - coalesce(s.amount, 0) as reserved, l.alerted_at,
        l.exceeded_at, coalesce(s.amount, 0) as amount, coalesce(s.cost, 0) as cost,
        coalesce(s.requests, 0) as requests, coalesce(s.input_tokens, 0) as input_tokens,
        coalesce(s.output_tokens, 0) as output_tokens
      from locked l left join sums s on s.month = l.month
    ),
    known as materialized (
      select r.id from ai_gateway_reservation r join asked i on i.id = r.id
      where r.org_id = ${orgId}::uuid and ${gate}
    ),
    fitting as (
      select i.*, sum(i.amount) over (order by i.ord) as upto from asked i
      where i.id not in (select id from known)
    ),
    granted as (
      insert into ai_gateway_reservation (org_id, id, gateway_uid, gateway_key, model, holder, day, amount)
      select ${orgId}::uuid, f.id, ${gateway}::uuid, f.gateway_key, f.model, f.holder, ${today(sql)}, f.amount
      from fitting f cross join months m cross join gateway g
      where m.current and g.live and not g.stopped and f.upto <= g.cap - m.spent - m.reserved and ${gate}
      on conflict do nothing
      returning id, amount
    ),
    counted as (
      update ai_gateway_month m set reserved = m.reserved - l.amount + case when l.current then t.amount else 0 end,
        spent = m.spent + l.cost, requests = m.requests + l.requests, input_tokens = m.input_tokens + l.input_tokens,
        output_tokens = m.output_tokens + l.output_tokens
      from months l cross join (select coalesce(sum(amount), 0)::bigint as amount from granted) t
      where m.org_id = ${orgId}::uuid and m.gateway_uid = ${gateway}::uuid and m.month = l.month
        and (l.settled or l.current and t.amount > 0) and ${gate}
    ),
    used as (
      insert into ai_gateway_usage as u
        (org_id, gateway_uid, day, model, gateway_key, requests, input_tokens, output_tokens, spent)
      select ${orgId}::uuid, ${gateway}::uuid, e.day, e.model, coalesce(e.gateway_key, ${noKey}::uuid), count(*),
        sum(e.input_tokens), sum(e.output_tokens), sum(e.cost)
      from ended e join locked l on l.month = date_trunc('month', e.day)::date
      where e.made and ${gate} group by e.day, e.model, e.gateway_key order by e.day, e.model, e.gateway_key
      on conflict (org_id, gateway_uid, day, model, gateway_key) do update set requests = u.requests + excluded.requests,
        input_tokens = u.input_tokens + excluded.input_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens, spent = u.spent + excluded.spent
    ),
    logged as (
      insert into ai_gateway_request (org_id, gateway_uid, id, gateway_key, model, upstream, status, input_tokens,
        output_tokens, estimated, cost, latency_ms)
      select ${orgId}::uuid, ${gateway}::uuid, id, gateway_key, model, upstream, status, input_tokens, output_tokens,
        estimated, cost, latency_ms
      from ended where made and ${gate}
    )
    select g.live, g.stopped, m.month::text as month, coalesce(m.current, false) as current, coalesce(m.settled, false) as settled,
      g.cap::float8 as cap, m.spent::float8 as spent, m.reserved::float8 as reserved,
      m.alerted_at is not null as alerted, m.exceeded_at is not null as exceeded,
      array(select id::text from granted union all select id::text from known) as granted,
      coalesce((select sum(amount) from granted), 0)::float8 as taken
    from gateway g left join months m on true`
}

/** The month of a call, and what the call holds, as they were before. */
export interface ExtendedRow {
  /** Null: the call holds nothing any more. */
  readonly month: string | null
  readonly cap: number
  readonly spent: number
  readonly reserved: number
  readonly exceeded: boolean
  readonly held: number
  readonly granted: boolean
}

/**
 * Lets a call hold `total`, if that fits. Repeating it changes nothing. No row: the gateway is gone. The locks come in the
 * order of `enter`.
 */
export const extend = (sql: Sql, orgId: string, gateway: string, id: string, total: number) => {
  const gate = inOrg(sql, orgId)
  return sql<ExtendedRow>`
    with gateway as materialized (
      select ${capOf(sql)} as cap from resource r
      where r.org_id = ${orgId}::uuid and r.uid = ${gateway}::uuid and r.kind = 'AiGateway'
        and r.deletion_requested_at is null and ${gate}
    ),
    own as materialized (
      select r.id, r.amount, date_trunc('month', r.day)::date as month from ai_gateway_reservation r
      where r.org_id = ${orgId}::uuid and r.id = ${id}::uuid and r.gateway_uid = ${gateway}::uuid and ${gate}
        and exists (select from gateway)
      for update
    ),
    month as materialized (
      select m.month, m.spent, m.reserved, m.exceeded_at, o.amount, ${total}::bigint - o.amount as more
      from ai_gateway_month m join own o on o.month = m.month
      where m.org_id = ${orgId}::uuid and m.gateway_uid = ${gateway}::uuid and ${gate}
      for update of m
    ),
    extended as (
      update ai_gateway_reservation r set amount = ${total}::bigint from own o, month m, gateway g
      where r.org_id = ${orgId}::uuid and r.id = o.id and m.more > 0 and m.more <= g.cap - m.spent - m.reserved
        and ${gate}
      returning m.month, m.more
    ),
    held as (
      update ai_gateway_month m set reserved = m.reserved + e.more from extended e
      where m.org_id = ${orgId}::uuid and m.gateway_uid = ${gateway}::uuid and m.month = e.month and ${gate}
    )
    select to_char(m.month, 'YYYY-MM') as month, g.cap::float8 as cap, m.spent::float8 as spent,
      m.reserved::float8 as reserved, m.exceeded_at is not null as exceeded, m.amount::float8 as held,
      m.more <= 0 or exists (select from extended) as granted
    from gateway g left join month m on true`
}

export const beginMonth = (sql: Sql, orgId: string, gateway: string) => sql`
  insert into ai_gateway_month (org_id, gateway_uid, month)
  select r.org_id, r.uid, ${thisMonth(sql)} from resource r
  where r.org_id = ${orgId}::uuid and r.uid = ${gateway}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}
  on conflict do nothing`

/** Reservations of one gateway. */
export interface Held {
  readonly orgId: string
  readonly projectId: string
  readonly gateway: string
  readonly ids: ReadonlyArray<string>
  readonly amounts: ReadonlyArray<number>
}

/** Reservations whose call cannot be going on any more, by gateway. Index: ai_gateway_reservation_age. */
export const abandoned = (sql: Sql, longestCallSeconds: number, leaseSeconds: number, most: number) =>
  sql<Held>`
  select org_id as "orgId", project_id as "projectId", gateway_uid as gateway, array_agg(id::text) as ids,
    array_agg(amount::float8) as amounts
  from (
    select r.org_id, g.project_id, r.gateway_uid, r.id, r.amount from ai_gateway_reservation r
    join resource g on g.org_id = r.org_id and g.uid = r.gateway_uid
    left join ai_gateway_holder h on h.id = r.holder
    where r.reserved_at < now() - make_interval(secs => ${leaseSeconds}::int)
      and (h.alive_until is null or h.alive_until < now()
        or r.reserved_at < now() - make_interval(secs => ${longestCallSeconds}::int))
    order by r.reserved_at limit ${most}::int
  ) lost
  group by 1, 2, 3`

/**
 * Reservations of a process other than those it names, by gateway. Reads the whole table, which has a row for each call
 * under way.
 */
export const heldBesides = (sql: Sql, holder: string, known: ReadonlyArray<string>, most: number) =>
  sql<Omit<Held, "amounts">>`
  select org_id as "orgId", project_id as "projectId", gateway_uid as gateway, array_agg(id::text) as ids
  from (
    select r.org_id, g.project_id, r.gateway_uid, r.id from ai_gateway_reservation r
    join resource g on g.org_id = r.org_id and g.uid = r.gateway_uid
    where r.holder = ${holder}::uuid
      and r.id not in (select k::uuid from jsonb_array_elements_text(${sql.json(known)}::jsonb) k)
    limit ${most}::int
  ) late
  group by 1, 2, 3`

/** Says that a process is there, and its calls go on. */
export const renew = (sql: Sql, holder: string, leaseSeconds: number) => sql`
  insert into ai_gateway_holder (id, alive_until)
  values (${holder}::uuid, now() + make_interval(secs => ${leaseSeconds}::int))
  on conflict (id) do update set alive_until = excluded.alive_until`

export const forget = (sql: Sql, holder: string) =>
  sql`delete from ai_gateway_holder where id = ${holder}::uuid`
