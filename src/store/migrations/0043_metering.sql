-- What runs on and costs something is counted by the hour into the budgets of projects.

-- Everything that an organization used until then is counted: a whole hour (UTC).
create table metering_organization (
  org_id uuid primary key references organization on delete cascade,
  metered_until timestamptz not null
);
create index metering_organization_next on metering_organization (metered_until);
-- Nothing is counted of the time before there was metering.
insert into metering_organization (org_id, metered_until) select id, date_trunc('hour', now(), 'UTC') from organization;
create function organization_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  insert into metering_organization (org_id, metered_until) values (new.id, date_trunc('hour', now(), 'UTC'));
  return null;
end
$$;
create trigger organization_is_metered after insert on organization for each row
  execute function organization_is_metered();

-- What things cost, by day (UTC).
create table budget_usage (
  org_id uuid not null references organization on delete cascade,
  project_uid uuid not null,
  day date not null,
  -- Of what cost; of executions the project: they are many.
  uid uuid not null,
  -- server, backups, calls or executions
  item text not null,
  kind text not null,
  environment text,
  name text not null,
  -- Millionths of a US dollar.
  spent bigint not null check (spent >= 0),
  primary key (org_id, project_uid, day, uid, item)
) with (fillfactor = 70);
create index budget_usage_of on budget_usage (org_id, uid, day);

select svc_tenant_table(name) from unnest(array['metering_organization', 'budget_usage']) as name;

-- Under a hard stop nothing that costs something by the hour is made once the month's money is spent or promised.
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
create trigger budget_admits after insert on resource for each row
  when (new.kind in ('Database', 'DatabaseBranch', 'Cache', 'AiGateway'))
  execute function budget_admits();
