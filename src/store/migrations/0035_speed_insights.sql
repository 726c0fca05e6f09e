-- Speed insights: what browsers measured of projects' pages, as it came and summed up.

create table speed_project (
  org_id uuid not null,
  project_uid uuid not null,
  -- In the address that browsers send to: it is public.
  project_ref text not null unique,
  enabled boolean not null default false,
  sample_rate float8 not null default 1 check (sample_rate between 0 and 1),
  -- Beside those that follow from the project's environments and domains.
  allowed_origins text[] not null default '{}',
  primary key (org_id, project_uid),
  foreign key (org_id, project_uid) references resource (org_id, uid) on delete cascade
);

-- Batches as they came. Arrays are of one length: an entry for each measurement.
create table speed_batch (
  org_id uuid not null,
  project_uid uuid not null,
  environment_uid uuid not null,
  -- Of its first measurement (UTC), so that a batch that is sent again meets itself whenever it comes.
  day date not null,
  batch_id text not null,
  received_at timestamptz not null default now(),
  at timestamptz[] not null,
  -- Numbers of metrics, devices and kinds of navigation are those of src/speed-insights/batch.ts.
  metric smallint[] not null,
  value real[] not null,
  route text[] not null,
  device smallint[] not null,
  navigation smallint[] not null,
  primary key (org_id, project_uid, day, batch_id)
) partition by range (day);
create index speed_batch_received on speed_batch (received_at, project_uid);

-- Sums of a day (UTC): how many measurements had about which value.
create table speed_day (
  org_id uuid not null,
  project_uid uuid not null,
  environment_uid uuid not null,
  day date not null,
  -- Empty: all of them together.
  route text not null,
  device smallint not null,
  samples integer not null,
  -- For each hour and metric, and for each metric: src/speed-insights/packed.ts.
  hours bytea not null,
  total bytea not null,
  primary key (org_id, project_uid, environment_uid, day, route, device),
  foreign key (org_id, project_uid) references speed_project on delete cascade
);
create index speed_day_age on speed_day (day);

-- One row: batches that were received up to this moment are in the sums.
create table speed_rollup (
  one boolean primary key default true check (one),
  rolled_until timestamptz not null
);
insert into speed_rollup (rolled_until) values (now());

select svc_tenant_table('speed_project'), svc_tenant_table('speed_batch', false), svc_tenant_table('speed_day', false);
revoke insert, update, delete on speed_rollup from svc_api;

-- Makes the days to come and drops those whose time has passed. What is attached waits for nobody; dropping needs the table
-- for a moment, and gives up when it does not get it.
create function svc_speed_partitions() returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
declare
  today date := (now() at time zone 'UTC')::date;
  of_day date;
  part text;
begin
  perform set_config('lock_timeout', '2s', true);
  perform pg_advisory_xact_lock(7310577206);
  for of_day in select generate_series(today - 2, today + 7, interval '1 day')::date loop
    part := 'speed_batch_' || to_char(of_day, 'YYYYMMDD');
    continue when to_regclass(part) is not null;
    execute format('create table %I (like speed_batch including defaults including constraints including indexes)', part);
    perform svc_tenant_table(part, false);
    execute format('alter table speed_batch attach partition %I for values from (%L) to (%L)', part, of_day, of_day + 1);
  end loop;
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'speed_batch'::regclass and to_date(right(c.relname, 8), 'YYYYMMDD') < today - 30
  loop
    -- What was made above stays, whoever reads the old day; the next round tries again.
    begin
      execute format('drop table %I', part);
    exception when lock_not_available then
      raise log 'the day % is in use and is dropped later', part;
    end;
  end loop;
end
$$;
revoke all on function svc_speed_partitions() from public;
grant execute on function svc_speed_partitions() to svc_engine;
select svc_speed_partitions();
