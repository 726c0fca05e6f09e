-- Executions: how each of them goes, and what it printed.

-- How an execution goes, as its reconciler has seen it. Made by the first reconcile; until then it is starting.
create table execution (
  org_id uuid not null,
  uid uuid not null,
  project_uid uuid not null,
  -- Of the last reconcile that acted on it: older ones do nothing more.
  fence bigint not null,
  status text not null default 'starting'
    check (status in ('starting', 'running', 'succeeded', 'failed', 'cancelled', 'timed_out')),
  error_code text
    check (error_code in ('image_pull_failed', 'image_not_found', 'start_failed', 'out_of_memory', 'host_lost')),
  error text,
  exit_code integer,
  begun_at timestamptz(3) not null default now(),
  -- Memory of the host that it holds, from its first turn until its container is gone.
  room_mb integer,
  -- When its turn came to fetch its image; from then on it is to start in time.
  turn_at timestamptz(3),
  image_id text,
  image_digest text,
  -- Set before the engine is first asked to make something.
  container_made boolean not null default false,
  started_at timestamptz(3),
  -- Why and when it was told to end.
  stop_reason text check (stop_reason in ('cancelled', 'timed_out')),
  stop_at timestamptz(3),
  stop_sent boolean not null default false,
  -- Since when the engine does not answer while it should run.
  lost_since timestamptz(3),
  finished_at timestamptz(3),
  cleanup_status text not null default 'pending' check (cleanup_status in ('pending', 'confirmed', 'attention_required')),
  cleanup_tries integer not null default 0,
  -- What it printed: how many bytes are kept, how many that counts for, whether all of it is there, and who follows it.
  log_position bigint not null default 0,
  log_weight bigint not null default 0,
  log_complete boolean not null default false,
  log_owner text,
  log_owner_at timestamptz,
  primary key (org_id, uid),
  check ((finished_at is null) = (status in ('starting', 'running')))
) with (fillfactor = 70);
create index execution_holding on execution (room_mb) where room_mb is not null;
create index execution_age on execution (finished_at) where finished_at is not null;
-- Those of one status, newest first: their ids begin with the time at which they were made.
create index execution_status on execution (org_id, project_uid, status, uid);
create index execution_listing on resource (org_id, project_id, created_at, uid) where kind = 'Execution';

create table execution_log (
  org_id uuid not null,
  execution_uid uuid not null,
  -- Bytes of the execution that come before it.
  position bigint not null,
  stream text not null check (stream in ('stdout', 'stderr', 'system')),
  -- As the engine says.
  at timestamptz(3) not null,
  content bytea not null,
  primary key (org_id, execution_uid, position)
);

-- Executions of a project that may not have ended yet: one row that all that are created at once pass.
create table execution_room (
  org_id uuid not null,
  project_uid uuid not null,
  uids uuid[] not null,
  primary key (org_id, project_uid),
  foreign key (org_id, project_uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 50);

-- The same for an organization.
create table execution_org_room (
  org_id uuid primary key references organization on delete cascade,
  uids uuid[] not null
) with (fillfactor = 50);

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['execution', 'execution_log', 'execution_room', 'execution_org_room'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
-- Requests read; the reconciler and those who follow the containers write.
revoke insert, update, delete on execution, execution_log from svc_api;
