-- Which resources the specifications of others name, so that nobody reads all specifications to find out.
create table resource_reference (
  org_id uuid not null,
  -- The resource whose specification names the other.
  uid uuid not null,
  -- JSON Pointer into the specification.
  path text not null,
  -- What is named: a resource of this kind, by uid, or by name in a place. It need not exist.
  kind text not null,
  by_uid boolean not null,
  target text not null,
  project_id uuid,
  environment text,
  -- What is named is not deleted as long as it is.
  required boolean not null,
  -- Following it from resource to resource comes to an end.
  acyclic boolean not null,
  -- The transaction that began to name it. Null: it was recorded later than it was written.
  txid xid8,
  primary key (org_id, uid, path),
  foreign key (org_id, uid) references resource (org_id, uid) on delete cascade
);
create index resource_reference_target on resource_reference (org_id, kind, target);
alter table resource_reference enable row level security;
create policy tenant on resource_reference to svc_api using (org_id = (select svc_current_org()));
create policy engine on resource_reference to svc_engine using (true);

-- The generation whose references are recorded. Where it is not the resource's, as in rows from before this table and in
-- those that the former release writes, the next change of the organization that depends on references records them first.
--
-- The triggers of 0015 stay for the former release, which relies on them; the release after this one drops them.
alter table resource add column references_generation integer;

-- Stands in work.waiting_on for a resource that is waited for by name, whether or not it exists. Unique within an
-- organization as far as SHA-256 is.
create function svc_named(kind text, project_id uuid, environment text, name text) returns uuid
  language sql immutable parallel safe
  return encode(substr(sha256(convert_to(
    kind || '/' || coalesce(project_id::text, '') || '/' || coalesce(environment, '') || '/' || name, 'UTF8')), 1, 16),
    'hex')::uuid;
