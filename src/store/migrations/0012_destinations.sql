-- Backup destinations: every configuration that one ever had, each with its credentials and how its last test went.

create table backup_destination_version (
  org_id uuid not null,
  destination_id uuid not null,
  version integer not null,
  endpoint text not null,
  bucket text not null,
  prefix text not null,
  region text,
  -- Key id, secret and session token.
  key_id text not null,
  sealed bytea not null,
  created_at timestamptz(3) not null default now(),
  tested_at timestamptz(3),
  -- What was wrong in the last test; absent: nothing.
  fault text,
  message text,
  primary key (org_id, destination_id, version)
);
create index backup_destination_version_key on backup_destination_version (key_id);

alter table backup_destination_version enable row level security;
create policy tenant on backup_destination_version to svc_api using (org_id = (select svc_current_org()));
create policy engine on backup_destination_version to svc_engine using (true);
