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

-- What is said of previews holds for those of pull requests as well: their environments stand below the previews.
create or replace function svc_access_mode(of_org uuid, of_environment uuid) returns text
language sql stable security definer set search_path = public, pg_temp
as $$
  select coalesce(
    p.spec->'environments'->>e.name,
    case when e.name = 'preview' or e.parent_uid <> e.project_id then nullif(p.spec->>'previewMode', 'inherit') end,
    p.spec->>'mode',
    'public')
  from resource e
  left join resource p on p.org_id = e.org_id and p.kind = 'AccessPolicy' and p.project_id = e.project_id
    and p.deleted_at is null and (p.deletion_requested_at is null or e.deletion_requested_at is not null)
  where e.org_id = of_org and e.uid = of_environment and e.kind = 'Environment'
  order by p.deletion_requested_at nulls first
  limit 1
$$;

-- Repositories of projects, whose pull requests have previews. Looked at when a forge tells of one, and now and then in
-- case that was lost.
create table pull_request_look (
  org_id uuid not null,
  project_uid uuid not null,
  -- Owner and name, in lower case.
  repo text not null,
  due_at timestamptz not null default now(),
  lease_token bigint,
  -- When somebody last told of a pull request, and when the lease began.
  told_at timestamptz,
  claimed_at timestamptz,
  failures integer not null default 0,
  error text,
  primary key (org_id, project_uid),
  foreign key (org_id, project_uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 70);
create index pull_request_look_due on pull_request_look (due_at);
create index pull_request_look_repo on pull_request_look (org_id, repo);
select svc_tenant_table('pull_request_look', false);
