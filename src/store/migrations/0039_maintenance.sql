-- Maintenance of projects: schedules in force, runs, what they found, and what was done about it.

-- What the reconciler converges: when the next run is planned.
create table maintenance_schedule (
  org_id uuid not null,
  uid uuid not null,
  -- Absent: it does not run by itself.
  schedule text check (schedule in ('hourly', 'daily', 'weekly')),
  next_at timestamptz,
  -- The highest number of a reconcile that changed this.
  fence bigint not null,
  primary key (org_id, uid),
  foreign key (org_id, uid) references resource (org_id, uid) on delete cascade
);
create index maintenance_schedule_due on maintenance_schedule (next_at) where next_at is not null;

create table maintenance_run (
  org_id uuid not null,
  id uuid not null,
  maintenance_uid uuid not null,
  trigger text not null check (trigger in ('schedule', 'manual')),
  status text not null default 'pending' check (status in ('pending', 'running', 'succeeded', 'failed')),
  created_at timestamptz(3) not null default now(),
  started_at timestamptz(3),
  finished_at timestamptz(3),
  attempt integer not null default 0,
  -- When it is to begin, or when the lease of whoever is at it ends.
  due_at timestamptz not null default now(),
  lease_token bigint,
  -- By category: how many findings there are, or why it could not be looked at.
  categories jsonb not null default '{}',
  opened integer not null default 0,
  resolved integer not null default 0,
  -- Why it failed, for people.
  reason text,
  primary key (org_id, id),
  foreign key (org_id, maintenance_uid) references resource (org_id, uid) on delete cascade
);
-- One at a time.
create unique index maintenance_run_open on maintenance_run (org_id, maintenance_uid) where finished_at is null;
create index maintenance_run_due on maintenance_run (due_at) where finished_at is null;
create index maintenance_run_turn on maintenance_run (org_id, due_at) where finished_at is null;
create index maintenance_run_listing on maintenance_run (org_id, maintenance_uid, created_at, id);
create index maintenance_run_age on maintenance_run (finished_at) where finished_at is not null;

create table maintenance_finding (
  org_id uuid not null,
  id uuid not null,
  maintenance_uid uuid not null,
  -- The same in every run that finds it.
  key text not null,
  category text not null,
  severity text not null check (severity in ('info', 'warning', 'critical')),
  -- What it is about: kind, uid, name, environment.
  subject jsonb not null,
  summary text not null,
  risk text not null,
  evidence jsonb not null,
  -- The operation that would mend it; absent: there is none.
  remedy jsonb,
  -- While this stays the same, a dismissal holds.
  basis text not null,
  first_seen_at timestamptz(3) not null default now(),
  last_seen_at timestamptz(3) not null default now(),
  resolved_at timestamptz(3),
  dismissed_at timestamptz(3),
  dismissed_by text,
  dismissed_reason text,
  primary key (org_id, id),
  unique (org_id, maintenance_uid, key),
  foreign key (org_id, maintenance_uid) references resource (org_id, uid) on delete cascade
);
create index maintenance_finding_listing on maintenance_finding (org_id, maintenance_uid, first_seen_at, id);
create index maintenance_finding_resolved on maintenance_finding (resolved_at) where resolved_at is not null;

-- Operations that a run decided on, stored before any of them is called. Their ids are the idempotency keys of the calls.
create table maintenance_action (
  org_id uuid not null,
  id uuid not null,
  maintenance_uid uuid not null,
  run_id uuid not null,
  finding_id uuid not null,
  remedy jsonb not null,
  status text not null default 'planned' check (status in ('planned', 'running', 'succeeded', 'failed', 'refused')),
  created_at timestamptz(3) not null default now(),
  started_at timestamptz(3),
  finished_at timestamptz(3),
  attempt integer not null default 0,
  due_at timestamptz not null default now(),
  lease_token bigint,
  -- What the operation answered, as far as it was called.
  answered integer,
  reason text,
  primary key (org_id, id),
  foreign key (org_id, maintenance_uid) references resource (org_id, uid) on delete cascade
);
create index maintenance_action_due on maintenance_action (due_at) where finished_at is null;
create index maintenance_action_turn on maintenance_action (org_id, due_at) where finished_at is null;
create index maintenance_action_of_run on maintenance_action (org_id, run_id);
create index maintenance_action_of_finding on maintenance_action (org_id, finding_id, created_at);
create index maintenance_action_age on maintenance_action (finished_at) where finished_at is not null;

-- Requests dismiss findings and ask for runs; the rest is the engine's.
select svc_tenant_table('maintenance_run');
select svc_tenant_table('maintenance_finding');
select svc_tenant_table('maintenance_schedule', false);
select svc_tenant_table('maintenance_action', false);
