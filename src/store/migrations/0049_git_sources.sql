-- What is known of manifests that are kept from git repositories. The specification is the resource's own.
create table git_source (
  org_id uuid not null,
  uid uuid not null,
  -- The highest number of a reconcile that worked on it.
  fence bigint not null default 0,
  -- What the looks so far came to; absent before the first. schemas/git-source.ts says what is in it.
  state jsonb,
  -- The generation of the resource that it was looked at for.
  generation integer not null default 0,
  -- Rises when somebody asks for a look, and how far looks have answered that.
  asked bigint not null default 0,
  answered bigint not null default 0,
  primary key (org_id, uid),
  foreign key (org_id, uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 70);

select svc_tenant_table('git_source');
