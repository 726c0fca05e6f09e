-- Apps of several instances: whether each goes on answering, how many are wanted, and what is under way at the edge.

alter table app_instance
  -- Checks of its health in a row, once it was healthy, that it did not answer well; and when the last one that changed
  -- this number was made.
  add column unanswered integer not null default 0,
  add column checked_at timestamptz(3);

alter table app
  -- Instances that are wanted by the requests under way; null: no more than the specification says.
  add column scale integer,
  -- When as many were last needed.
  add column scale_at timestamptz(3);

-- Bytes and pieces before it in the log, as they count for what is kept. Null: by the former release, so that it goes first.
alter table app_log add column weight bigint;

-- Requests under way to an app's instances, by each node of the edge, averaged over a few seconds.
create table edge_load (
  org_id uuid not null,
  environment_uid uuid not null,
  node text not null,
  requests real not null,
  at timestamptz(3) not null default now(),
  primary key (org_id, environment_uid, node),
  foreign key (org_id, environment_uid) references edge_site on delete cascade
) with (fillfactor = 50);
create index edge_load_age on edge_load (at);

select svc_tenant_table('edge_load', false);
