-- Looking up an environment by its name read all environments of the project.
drop index resource_by_place;
create index resource_by_place on resource (org_id, kind, project_id, environment, name) where deleted_at is null;
