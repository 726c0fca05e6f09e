-- Identity -----------------------------------------------------------------------------------------------------

create table organization (
  id uuid primary key,
  name text not null,
  slug text not null unique,
  is_personal boolean not null default false,
  billing_status text not null check (billing_status in ('unpaid', 'active', 'past_due', 'canceled')),
  created_at timestamptz not null default now()
);

create table account (
  id uuid primary key,
  email text not null unique,
  name text not null,
  created_at timestamptz not null default now()
);

create table member (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  user_id uuid not null references account on delete cascade,
  role text not null check (role in ('owner', 'admin', 'member')),
  created_at timestamptz not null default now(),
  primary key (org_id, id),
  unique (user_id, org_id)
);

-- Tokens are kept as SHA-256 digests only: they are random, so a slow hash would add nothing.
create table session (
  id uuid primary key,
  digest bytea not null unique,
  user_id uuid not null references account on delete cascade,
  created_at timestamptz not null default now(),
  last_used_at timestamptz not null default now(),
  expires_at timestamptz not null
);

create table api_key (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  name text not null,
  key_prefix text not null,
  digest bytea not null unique,
  role text not null check (role in ('admin', 'member')),
  created_by uuid references account on delete set null,
  last_used_at timestamptz,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  primary key (org_id, id)
);

-- Desired and observed state -----------------------------------------------------------------------------------

create sequence resource_revision;

create table resource (
  org_id uuid not null references organization,
  uid uuid not null,
  kind text not null,
  project_id uuid,
  environment text,
  name text not null,
  parent_uid uuid,
  spec jsonb not null,
  generation integer not null default 1,
  status jsonb,
  observed_generation integer not null default 0,
  phase text not null default 'pending',
  phase_since timestamptz not null default now(),
  conditions jsonb not null default '[]',
  -- How what is there departed from the specification when it was last looked at.
  differences jsonb not null default '[]',
  -- The last look found nothing to do and left nothing to report.
  settled boolean not null default false,
  -- Order of the change feed: a reader that has seen everything up to (txid, revision) and reads only
  -- transactions older than every running one never misses a late commit.
  revision bigint not null default nextval('resource_revision'),
  txid xid8 not null default pg_current_xact_id(),
  protected boolean not null default false,
  managed_by text not null check (managed_by in ('api', 'manifest')),
  deletion_requested_at timestamptz,
  -- A deleted row stays as a tombstone, so that followers of the feed learn of it; it is pruned later.
  deleted_at timestamptz,
  -- Milliseconds, like the cursors that are made of it.
  created_at timestamptz(3) not null default now(),
  updated_at timestamptz not null default now(),
  primary key (org_id, uid)
) with (fillfactor = 80);

-- A name is free as soon as deletion is asked for: what is being deleted and what takes its place have different
-- uids, and names out there are made of uids.
create unique index resource_identity on resource (org_id, kind, project_id, environment, name)
  nulls not distinct where deletion_requested_at is null;
create unique index resource_one_database on resource (org_id, parent_uid)
  where kind = 'Database' and deletion_requested_at is null;
create index resource_by_place on resource (org_id, kind, project_id, environment) where deleted_at is null;
create index resource_children on resource (org_id, parent_uid) where deleted_at is null;
create index resource_listing on resource (org_id, created_at, uid) where deleted_at is null;
create index resource_feed on resource (org_id, txid, revision);
create index resource_tombstones on resource (deleted_at) where deleted_at is not null;

-- The queue: narrow, so that claiming never rewrites the wide rows above.
create sequence lease_token;

create table work (
  org_id uuid not null,
  uid uuid not null,
  kind text not null,
  due_at timestamptz not null default now(),
  -- due_at plus a penalty by priority. Claiming in this order serves a person first and lets age lift the rest.
  rank timestamptz not null default now(),
  attempt integer not null default 0,
  -- Somebody asked for another look while one was running.
  again boolean not null default false,
  lease_token bigint,
  lease_until timestamptz,
  waiting_on uuid,
  last_error text,
  -- Set by "retry now"; it moves to handled_retry when a reconcile that began later has ended.
  retry_token text,
  handled_retry text,
  primary key (org_id, uid)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_cost_delay = 0
);
create index work_claim on work (kind, rank);
create index work_waiting on work (waiting_on) where waiting_on is not null;

create table pause (
  id uuid primary key,
  org_id uuid references organization on delete cascade,
  scope text not null check (scope in ('resource', 'project', 'kind', 'organization', 'all')),
  target text not null default '',
  reason text not null,
  paused_by text not null,
  paused_at timestamptz not null default now(),
  until timestamptz,
  unique nulls not distinct (org_id, scope, target)
);

create table resource_event (
  org_id uuid not null,
  uid uuid not null,
  id bigint generated always as identity,
  type text not null,
  reason text not null,
  message text not null,
  actor text,
  generation integer,
  count integer not null default 1,
  first_at timestamptz not null default now(),
  last_at timestamptz not null default now(),
  primary key (org_id, uid, id)
);
create index resource_event_age on resource_event (last_at);

-- Secrets ------------------------------------------------------------------------------------------------------

create table secret (
  org_id uuid not null,
  uid uuid not null,
  field text not null,
  key_id text not null,
  sealed bytea not null,
  updated_at timestamptz not null default now(),
  primary key (org_id, uid, field)
);
create index secret_key on secret (key_id);

create table platform_secret (
  name text primary key,
  key_id text not null,
  sealed bytea not null
);

-- Records of requests ------------------------------------------------------------------------------------------

create table audit_log (
  org_id uuid,
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  principal text not null,
  credential text not null,
  operation text not null,
  resource text,
  request_id text not null,
  address text,
  outcome integer not null
);
create index audit_log_org on audit_log (org_id, id);
create index audit_log_age on audit_log (at);

create table plan (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  applied_at timestamptz,
  key_id text not null,
  sealed bytea not null,
  primary key (org_id, id)
);
create index plan_age on plan (expires_at);

create table idempotency (
  org_id uuid not null,
  credential text not null,
  key text not null,
  request_digest bytea not null,
  created_at timestamptz not null default now(),
  -- Absent while the first request runs.
  status integer,
  key_id text,
  sealed bytea,
  primary key (org_id, credential, key)
);
create index idempotency_age on idempotency (created_at);

create unlogged table rate_limit (
  bucket text primary key,
  tokens double precision not null,
  updated_at timestamptz not null default now()
);
