-- Repositories: connections to where they are, what these tell of, and which commits of projects were seen.

create table git_connection (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  name text not null,
  kind text not null check (kind in ('github_app', 'github_token', 'gitlab', 'gitea', 'forgejo')),
  -- Of the forge, without a slash at the end.
  url text not null,
  -- The account or group whose repositories it opens, in lower case: the first part of a project's repository.
  owner text not null,
  app_id text,
  installation_id text,
  -- The credential and the secret of its webhook.
  key_id text not null,
  sealed bytea not null,
  -- As whom the forge knows it, and what was wrong when it was asked last.
  account text,
  checked_at timestamptz,
  check_error text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, id),
  unique (org_id, name),
  unique (org_id, owner)
);
create unique index git_connection_id on git_connection (id);
create index git_connection_key on git_connection (key_id);

-- What a forge has told, once each.
create table git_delivery (
  org_id uuid not null,
  connection_id uuid not null,
  -- As the forge names it.
  delivery_id text not null,
  event text not null check (event in ('push', 'pull_request', 'other')),
  -- In lower case.
  repo text,
  branch text,
  pull_request integer,
  received_at timestamptz not null default now(),
  primary key (org_id, connection_id, delivery_id),
  foreign key (org_id, connection_id) references git_connection (org_id, id) on delete cascade
);
create index git_delivery_age on git_delivery (received_at);

-- The production branch of each project whose repository a connection opens. Looked at when a forge tells of a push, and
-- now and then in case that was lost.
create table git_branch (
  org_id uuid not null references organization on delete cascade,
  project_uid uuid not null,
  -- That it is listed for. Another one is another repository.
  connection_id uuid,
  -- Of what it was seen: of another repository or branch everything begins anew.
  repo text not null,
  branch text not null default '',
  commit_id text,
  -- The deployment that is to be made of this commit; it is written before the deployment.
  deployment_uid uuid,
  due_at timestamptz not null default now(),
  lease_token bigint,
  -- When somebody last told of a push, and when the lease began.
  told_at timestamptz,
  claimed_at timestamptz,
  failures integer not null default 0,
  error text,
  primary key (org_id, project_uid)
) with (fillfactor = 70);
create index git_branch_due on git_branch (due_at);
create index git_branch_repo on git_branch (org_id, repo);

create function git_is_told() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform pg_notify('svc_git', '');
  return null;
end
$$;
create trigger git_is_told after insert on git_delivery for each statement execute function git_is_told();
create trigger git_is_connected after insert on git_branch for each statement execute function git_is_told();

select svc_tenant_table(name) from unnest(array['git_connection', 'git_delivery', 'git_branch']) as name;

-- Deployments of commits: their source could not be fetched.
alter table deployment
  drop constraint deployment_error_code_check,
  add constraint deployment_error_code_check check (error_code in (
    'image_pull_failed', 'image_not_found', 'build_failed', 'build_timed_out', 'build_unavailable',
    'source_unavailable', 'never_healthy', 'timed_out')) not valid;
