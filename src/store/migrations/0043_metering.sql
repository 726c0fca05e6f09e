-- What runs on and costs something is counted by the hour into the budgets of projects.

-- Everything that an organization used until then is counted: a whole hour (UTC).
create table metering_organization (
  org_id uuid primary key references organization on delete cascade,
  metered_until timestamptz not null
);
create index metering_organization_next on metering_organization (metered_until);
create function organization_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  insert into metering_organization (org_id, metered_until) values (new.id, date_trunc('hour', now(), 'UTC'))
    on conflict do nothing;
  return null;
end
$$;
create trigger organization_is_metered after insert on organization for each row
  execute function organization_is_metered();
-- Nothing is counted of the time before there was metering.
insert into metering_organization (org_id, metered_until) select id, date_trunc('hour', now(), 'UTC') from organization
  on conflict do nothing;

-- From when to when something had a size, beginning with the first time that it was ready. What is counted to its end goes.
create table metered_period (
  org_id uuid not null references organization on delete cascade,
  uid uuid not null,
  since timestamptz not null default now(),
  until timestamptz,
  project_uid uuid not null,
  kind text not null,
  environment text,
  name text not null,
  sku text not null,
  servers integer not null,
  primary key (org_id, uid, since)
);
create unique index metered_period_open on metered_period (org_id, uid) where until is null;

-- In the transaction that changes the resource: whatever becomes of its row later, how long it had which size is known.
create function size_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
declare
  servers_now integer := 1 + coalesce((new.spec->>'replicas')::integer, 0);
  begun boolean;
begin
  update metered_period set until = greatest(since, now())
    where org_id = new.org_id and uid = new.uid and until is null
      and (new.deletion_requested_at is not null or sku <> new.spec->>'sku' or servers <> servers_now);
  begun := found;
  if new.deletion_requested_at is null and new.spec ? 'sku' and (begun or new.phase = 'ready') then
    insert into metered_period (org_id, uid, since, project_uid, kind, environment, name, sku, servers)
      values (new.org_id, new.uid, clock_timestamp(), new.project_id, new.kind, new.environment, new.name,
        new.spec->>'sku', servers_now)
      on conflict (org_id, uid) where until is null do nothing;
  end if;
  return null;
end
$$;
create trigger size_is_metered after update of phase, spec, deletion_requested_at on resource for each row
  when (new.kind in ('Database', 'DatabaseBranch', 'Cache')
    and (old.phase <> new.phase and new.phase = 'ready' or old.spec <> new.spec
      or old.deletion_requested_at is null and new.deletion_requested_at is not null))
  execute function size_is_metered();
insert into metered_period (org_id, uid, project_uid, kind, environment, name, sku, servers)
  select org_id, uid, project_id, kind, environment, name, spec->>'sku', 1 + coalesce((spec->>'replicas')::integer, 0)
  from resource
  where kind in ('Database', 'DatabaseBranch', 'Cache') and phase = 'ready' and deletion_requested_at is null
    and spec->>'sku' is not null
  on conflict do nothing;

-- What things cost, by day (UTC).
create table budget_usage (
  org_id uuid not null references organization on delete cascade,
  project_uid uuid not null,
  day date not null,
  -- Of what cost; of executions the project: they are many.
  uid uuid not null,
  -- server, disk, backups, calls or executions
  item text not null,
  kind text not null,
  environment text,
  name text not null,
  -- Millionths of a US dollar.
  spent bigint not null check (spent >= 0),
  primary key (org_id, project_uid, day, uid, item)
) with (fillfactor = 70);
create index budget_usage_of on budget_usage (org_id, uid, day);

select svc_tenant_table(name) from unnest(array['metering_organization', 'metered_period', 'budget_usage']) as name;

-- Under a hard stop nothing that costs something by the hour is made, or made larger, once the month's money is spent or
-- promised.
create function budget_admits() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  if exists (
    select from project_budget b
    left join budget_month m on m.org_id = b.org_id and m.project_uid = b.project_uid
      and m.month = date_trunc('month', now() at time zone 'UTC')::date
    where b.org_id = new.org_id and b.project_uid = new.project_id and b.hard_stop
      and coalesce(m.spent + m.reserved, 0) >= b.monthly_cap
  ) then
    raise exception 'The project''s budget for this month is used up, and it stops what costs more: raise the cap, or wait for the next month'
      using errcode = 'SVREF', constraint = 'budget_exhausted';
  end if;
  return null;
end
$$;
create function size_is_larger(before jsonb, after jsonb) returns boolean language sql immutable as $$
  select coalesce((after->>'replicas')::integer, 0) > coalesce((before->>'replicas')::integer, 0)
    or coalesce(array_position(sizes, after->>'sku') > array_position(sizes, before->>'sku'), false)
  from (select array['db-n1', 'db-s1', 'db-s2', 'cache-n1', 'cache-s1', 'cache-s2'] as sizes) s
$$;
create trigger budget_admits_larger after update of spec on resource for each row
  when (new.kind in ('Database', 'DatabaseBranch', 'Cache') and new.deletion_requested_at is null
    and size_is_larger(old.spec, new.spec))
  execute function budget_admits();
create trigger budget_admits after insert on resource for each row
  when (new.kind in ('Database', 'DatabaseBranch', 'Cache', 'AiGateway'))
  execute function budget_admits();
