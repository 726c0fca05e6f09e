-- Backups of databases: what is kept, where it is, and the work that makes and proves it.

-- One physical history of a data folder. It begins with a database, and outlives it being replaced by a branch.
create table backup_lineage (
  org_id uuid not null,
  lineage uuid not null,
  -- The database that has this history, or had it last.
  database_uid uuid not null,
  -- The key that its objects are sealed with, itself sealed by the key ring. Without it the objects are noise.
  key_id text not null,
  sealed bytea not null,
  made_at timestamptz(3) not null default now(),
  -- Whoever moves its finished segments into the repository.
  shipper bigint,
  shipper_until timestamptz,
  -- What keeps its log from being archived.
  trouble text,
  trouble_message text,
  trouble_since timestamptz(3),
  primary key (org_id, lineage)
);
create index backup_lineage_database on backup_lineage (database_uid);
create index backup_lineage_key on backup_lineage (key_id);
create sequence backup_token;

-- An object of the repository: a segment of the log, a file of its history, or a part of a base backup.
create table backup_object (
  org_id uuid not null,
  lineage uuid not null,
  -- What it is, which its content is bound to; the key says where it is kept.
  name text collate "C" not null,
  key text not null,
  backup_id uuid,
  plain_bytes bigint not null,
  stored_bytes bigint not null,
  plain_sha256 text not null,
  stored_sha256 text not null,
  -- Of a segment: when it was written last.
  finished_at timestamptz(3),
  -- Every commit before this moment is in it or in those before it: told by a flush.
  flushed_at timestamptz(3),
  stored_at timestamptz(3) not null default now(),
  primary key (org_id, lineage, name)
);
create index backup_object_of on backup_object (org_id, backup_id) where backup_id is not null;
create index backup_object_flushed on backup_object (org_id, lineage, name) where flushed_at is not null;

-- A copy of an object at a destination of the organization: wanted, there, or to be removed.
create table backup_copy (
  org_id uuid not null,
  lineage uuid not null,
  name text collate "C" not null,
  key text not null,
  destination_id uuid not null,
  -- The destination as it was when the object was put there.
  version integer,
  stored_at timestamptz(3),
  wanted_at timestamptz(3) not null default now(),
  removing boolean not null default false,
  tries integer not null default 0,
  -- When somebody has to do something with it; absent: nothing is left to do.
  due_at timestamptz,
  error text,
  primary key (org_id, lineage, name, destination_id)
);
create index backup_copy_due on backup_copy (org_id, destination_id, due_at) where due_at is not null;
create index backup_copy_version on backup_copy (org_id, destination_id, version);

-- Base backups, and drills that restore one.
create table backup_job (
  org_id uuid not null,
  id uuid not null,
  kind text not null check (kind in ('backup', 'drill')),
  database_uid uuid not null,
  lineage uuid not null,
  -- Of a drill: what it restores.
  backup_id uuid,
  reason text not null check (reason in ('schedule', 'request', 'first', 'gap', 'timeline', 'destination')),
  status text not null default 'queued' check (status in ('queued', 'running', 'succeeded', 'failed')),
  -- Of a backup that was asked for: whether it is to be proved at once.
  drill boolean not null default false,
  created_at timestamptz(3) not null default now(),
  started_at timestamptz(3),
  finished_at timestamptz(3),
  deadline_at timestamptz,
  -- When somebody has to look at it: at once, or at the end of the lease of whoever is at it.
  due_at timestamptz default now(),
  lease_token bigint,
  attempt integer not null default 0,
  bytes_done bigint not null default 0,
  bytes_total bigint not null default 0,
  step text,
  error text,
  -- Of a backup that succeeded.
  stored_bytes bigint,
  label text,
  tablespace_map text,
  start_segment text collate "C",
  stop_segment text collate "C",
  timeline integer,
  -- The first moment that it can be recovered to.
  consistent_at timestamptz(3),
  proven_at timestamptz(3),
  primary key (org_id, id)
);
create index backup_job_due on backup_job (due_at) where finished_at is null;
-- One of a kind at a time for each history: what a database was before does not keep what it is from being saved.
create unique index backup_job_open on backup_job (org_id, database_uid, lineage, kind) where finished_at is null;
create index backup_job_listing on backup_job (org_id, database_uid, created_at, id);

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['backup_lineage', 'backup_object', 'backup_copy', 'backup_job'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
-- Requests read what is kept, and ask for work; the engine alone writes the rest.
revoke insert, update, delete on backup_lineage, backup_object, backup_copy from svc_api;
