-- Requests to environments, as the edge answered them: the recent ones, and how many there were in each minute.

-- The number of the last request of an environment that was kept: they are numbered as they come.
create table edge_request_counter (
  org_id uuid not null,
  environment_uid uuid not null,
  last bigint not null,
  primary key (org_id, environment_uid),
  foreign key (org_id, environment_uid) references edge_site on delete cascade
);

create table edge_request (
  org_id uuid not null,
  environment_uid uuid not null,
  number bigint not null,
  -- When it came.
  at timestamptz not null,
  method text not null,
  host text not null,
  -- Without query.
  path text not null,
  -- Null: nobody answered.
  status smallint,
  duration_ms integer not null,
  bytes_in bigint not null,
  bytes_out bigint not null,
  -- How it ended, in HAProxy's two letters.
  termination text not null,
  primary key (org_id, environment_uid, number),
  foreign key (org_id, environment_uid) references edge_site on delete cascade
);
create index edge_request_age on edge_request (at);

-- Sums over the requests that ended in a minute.
create table edge_request_minute (
  org_id uuid not null,
  environment_uid uuid not null,
  minute timestamptz not null,
  -- 1 to 5 by the first digit of the status, 0: nobody answered.
  status_class smallint not null,
  requests bigint not null,
  bytes_in bigint not null,
  bytes_out bigint not null,
  duration_ms bigint not null,
  -- How many took so long: the bounds are those of src/edge/requests/tally.ts.
  durations bigint[] not null,
  primary key (org_id, environment_uid, minute, status_class),
  foreign key (org_id, environment_uid) references edge_site on delete cascade
);
create index edge_request_minute_age on edge_request_minute using brin (minute);

-- The proxy names the environment alone.
create index edge_site_environment on edge_site (environment_uid);

select svc_tenant_table(name, false)
from unnest(array['edge_request_counter', 'edge_request', 'edge_request_minute']) as name;
