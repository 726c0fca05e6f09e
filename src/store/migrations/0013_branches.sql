-- Branches of databases are resources; these find the few that a loop has something to do for.
create index resource_branch_waiting on resource (created_at)
  where kind = 'DatabaseBranch' and spec -> 'promoteWhenReady' = 'true'::jsonb and phase = 'ready'
    and deletion_requested_at is null and deleted_at is null;
create index resource_branch_lost on resource (updated_at)
  where kind = 'DatabaseBranch' and spec ? 'promotedTo' and status #>> '{failure,code}' = 'data_lost'
    and deletion_requested_at is null and deleted_at is null;
create index resource_branch_over on resource (updated_at)
  where kind = 'DatabaseBranch' and status ->> 'state' in ('expired', 'promoted')
    and deletion_requested_at is null and deleted_at is null;
