-- concurrently
create index concurrently resource_references_unrecorded on resource (org_id, kind)
  where deleted_at is null and references_generation is distinct from generation;
