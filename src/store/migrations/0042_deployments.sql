-- Apps and deployments: how they go, the instances of apps, and what these printed.

-- How a deployment goes, as its reconciler has seen it. Made by the first reconcile; until then it is queued.
create table deployment (
  org_id uuid not null,
  uid uuid not null,
  environment_uid uuid not null,
  -- Of the last reconcile that acted on it: older ones do nothing more.
  fence bigint not null,
  -- When it was asked for: of two, the later one is the newer version.
  created_at timestamptz(3) not null,
  state text not null default 'queued' check (
    state in ('queued', 'fetching', 'building', 'starting', 'ready', 'failed', 'cancelled', 'superseded')),
  -- When it came into this state.
  state_at timestamptz(3) not null default now(),
  error_code text check (error_code in ('image_pull_failed', 'image_not_found', 'never_healthy', 'timed_out')),
  error text,
  image_id text,
  image_digest text,
  ready_at timestamptz(3),
  finished_at timestamptz(3),
  -- Its image was let go of: it cannot be chosen again.
  image_gone boolean not null default false,
  log_position bigint not null default 0,
  primary key (org_id, uid),
  check ((finished_at is null) = (state in ('queued', 'fetching', 'building', 'starting')))
) with (fillfactor = 70);
create index deployment_newest on deployment (org_id, environment_uid, created_at, uid);
create index deployment_image on deployment (image_id) where image_id is not null and not image_gone;
create index deployment_listing on resource (org_id, project_id, created_at, uid) where kind = 'Deployment';

create table deployment_log (
  org_id uuid not null,
  deployment_uid uuid not null,
  -- Bytes of the log that come before it.
  position bigint not null,
  stream text not null check (stream in ('stdout', 'stderr', 'system')),
  at timestamptz(3) not null,
  content bytea not null,
  primary key (org_id, deployment_uid, position),
  foreign key (org_id, deployment_uid) references deployment on delete cascade
);

-- What an app's reconciler knows of it. A revision is a deployment with all that its instances are started with.
create table app (
  org_id uuid not null,
  uid uuid not null,
  environment_uid uuid not null,
  fence bigint not null,
  power text not null default 'awake' check (power in ('awake', 'paused', 'stopped')),
  -- Since when; also when a request was last seen to be under way.
  active_at timestamptz(3) not null default now(),
  -- Since when requests are held, because it is about to sleep or sleeps.
  asleep_at timestamptz(3),
  -- What takes the requests, and what was given up because it did not get healthy.
  serving_revision text,
  serving_deployment uuid,
  rejected_revision text,
  rejected_deployment uuid,
  rejected_error text,
  -- Instances in a row that ended by themselves, and when the next one may be started.
  crashes integer not null default 0,
  next_start_at timestamptz(3),
  primary key (org_id, uid)
) with (fillfactor = 70);
create unique index app_environment on app (org_id, environment_uid);

-- A container of an app, from before it is made until after it has ended. Each is started once.
create table app_instance (
  org_id uuid not null,
  uid uuid not null,
  app_uid uuid not null,
  deployment_uid uuid not null,
  revision text not null,
  port integer not null,
  state text not null default 'starting' check (state in ('starting', 'healthy', 'draining', 'stopping', 'ended')),
  made_at timestamptz(3) not null default now(),
  -- Set before the engine is first asked to make something.
  container_made boolean not null default false,
  address text,
  started_at timestamptz(3),
  healthy_at timestamptz(3),
  drain_at timestamptz(3),
  -- When it was told to end.
  stop_at timestamptz(3),
  ended_at timestamptz(3),
  exit_code integer,
  -- Why it ended, for people.
  exit_reason text,
  -- Nothing is left of its container.
  removed boolean not null default false,
  log_position bigint not null default 0,
  log_weight bigint not null default 0,
  log_complete boolean not null default false,
  log_owner text,
  log_owner_at timestamptz,
  primary key (org_id, uid),
  foreign key (org_id, app_uid) references app (org_id, uid) on delete cascade,
  check ((ended_at is null) = (state <> 'ended'))
) with (fillfactor = 70);
create index app_instance_app on app_instance (org_id, app_uid, uid);
create index app_instance_age on app_instance (ended_at) where ended_at is not null;

create table app_log (
  org_id uuid not null,
  instance_uid uuid not null,
  position bigint not null,
  stream text not null check (stream in ('stdout', 'stderr', 'system')),
  at timestamptz(3) not null,
  content bytea not null,
  primary key (org_id, instance_uid, position),
  foreign key (org_id, instance_uid) references app_instance (org_id, uid) on delete cascade
);
create index app_log_age on app_log using brin (at);

-- The app that answers at an environment's address, whose reconciler says where requests go.
alter table edge_site add column app_uid uuid;

select svc_tenant_table(name, false)
from unnest(array['deployment', 'deployment_log', 'app', 'app_instance', 'app_log']) as name;
