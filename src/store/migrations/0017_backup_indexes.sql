-- What the loops of backups look for again and again, found without reading everything else.

-- Whoever carries a copy: what it writes counts only while it has it.
alter table backup_copy add column lease bigint;

-- Somebody waits until the end of the log is in the repository.
alter table backup_lineage add column flush_wanted_until timestamptz;
create index backup_lineage_flush on backup_lineage (flush_wanted_until) where flush_wanted_until is not null;

-- A destination that fails is left alone for a while, longer each time; then one try decides.
create table backup_destination_pause (
  org_id uuid not null,
  destination_id uuid not null,
  -- Putting and removing are allowed apart, and fail apart.
  removing boolean not null,
  failures integer not null default 1,
  error text not null,
  due_at timestamptz not null,
  primary key (org_id, destination_id, removing)
);
alter table backup_destination_pause enable row level security;
create policy tenant on backup_destination_pause to svc_api using (org_id = (select svc_current_org()));
create policy engine on backup_destination_pause to svc_engine using (true);
revoke insert, update, delete on backup_destination_pause from svc_api;

-- The destinations that have something to do: one step of the index for each, however much waits there.
drop index backup_copy_due;
create index backup_copy_due on backup_copy (org_id, destination_id, removing, due_at) where due_at is not null;
create index backup_copy_troubled on backup_copy (org_id, lineage) where tries >= 3 and stored_at is null;

create index resource_databases on resource (org_id, uid)
  where kind = 'Database' and deleted_at is null;
create index backup_lineage_troubled on backup_lineage (lineage) where trouble is not null;
create index backup_job_failed on backup_job (org_id, id) where kind = 'backup' and status = 'failed';
create index backup_job_good on backup_job (org_id, database_uid, lineage, consistent_at)
  where kind = 'backup' and status = 'succeeded';
create index backup_job_ended on backup_job (org_id, database_uid, kind, status, finished_at)
  where finished_at is not null;
