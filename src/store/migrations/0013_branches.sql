-- Branches of databases are resources; these find the few that a loop has something to do for.
create index resource_branch_waiting on resource (created_at)
  where kind = 'DatabaseBranch' and spec -> 'promoteWhenReady' = 'true'::jsonb and phase = 'ready'
    and status ->> 'state' = 'ready' and deletion_requested_at is null and deleted_at is null;
create index resource_branch_lost on resource (updated_at)
  where kind = 'DatabaseBranch' and spec ? 'promotedTo' and status #>> '{failure,code}' = 'data_lost'
    and deletion_requested_at is null and deleted_at is null;
create index resource_branch_over on resource (updated_at)
  where kind = 'DatabaseBranch' and status ->> 'state' in ('expired', 'promoted')
    and deletion_requested_at is null and deleted_at is null;

-- What such a loop has tried in vain, and when it tries again.
create table branch_try (
  org_id uuid not null,
  uid uuid not null,
  tries integer not null,
  due_at timestamptz not null,
  code text not null,
  message text not null,
  primary key (org_id, uid),
  foreign key (org_id, uid) references resource (org_id, uid) on delete cascade
);
alter table branch_try enable row level security;
create policy tenant on branch_try to svc_api using (org_id = (select svc_current_org()));
create policy engine on branch_try to svc_engine using (true);
revoke insert, update, delete on branch_try from svc_api;
