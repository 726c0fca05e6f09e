-- concurrently
create index concurrently resource_with_repository on resource (org_id, uid)
  where kind = 'Project' and deletion_requested_at is null and spec->'git'->>'repo' is not null;
