-- Measurements of resources: the newest ones, the samples of the last hours, and what these are packed into.

-- What was measured last, by who measures: `host` (the process on whose machine the thing is) or `store`. Alerts, lists
-- and exports read this alone. After a crash of the server it is empty until the next look.
create unlogged table metric_now (
  org_id uuid not null,
  uid uuid not null,
  source text not null check (source in ('host', 'store')),
  at timestamptz not null,
  -- By name of the measurement: numbers.
  values jsonb not null,
  -- Whether its samples are kept: no more than so many of an organization's are.
  kept boolean not null,
  primary key (org_id, uid, source),
  foreign key (org_id, uid) references resource on delete cascade
) with (fillfactor = 50);

-- Samples that are not packed yet. Without a foreign key: a check of each of them would lock the resource's row.
create table metric_sample (
  org_id uuid not null,
  uid uuid not null,
  source text not null,
  at timestamptz not null,
  values jsonb not null,
  primary key (org_id, uid, at, source)
);
create index metric_sample_age on metric_sample using brin (at);

-- Packed points of a resource (src/metrics/codec.ts): a row has an hour of samples,
create table metric_raw (
  org_id uuid not null,
  uid uuid not null,
  start timestamptz not null,
  data bytea not null,
  primary key (org_id, uid, start),
  foreign key (org_id, uid) references resource on delete cascade
);
create index metric_raw_age on metric_raw using brin (start);

-- an hour of sums over five minutes,
create table metric_five_minutes (
  org_id uuid not null,
  uid uuid not null,
  start timestamptz not null,
  data bytea not null,
  primary key (org_id, uid, start),
  foreign key (org_id, uid) references resource on delete cascade
);
create index metric_five_minutes_age on metric_five_minutes using brin (start);

-- or a day of sums over an hour.
create table metric_hour (
  org_id uuid not null,
  uid uuid not null,
  start timestamptz not null,
  data bytea not null,
  primary key (org_id, uid, start),
  foreign key (org_id, uid) references resource on delete cascade
);
create index metric_hour_age on metric_hour using brin (start);

-- Packed data is compressed already.
alter table metric_raw alter column data set storage external;
alter table metric_five_minutes alter column data set storage external;
alter table metric_hour alter column data set storage external;

-- What the platform does once in an interval, whichever of its processes does it: when it was last begun.
create table metric_turn (
  name text primary key,
  at timestamptz not null
);
revoke all on metric_turn from svc_api;

select svc_tenant_table(name, false)
from unnest(array['metric_now', 'metric_sample', 'metric_raw', 'metric_five_minutes', 'metric_hour']) as name;
