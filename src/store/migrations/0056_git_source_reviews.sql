-- What pull requests have shown of what merging them makes a git source do, until their outcome is told there.
create table git_source_review (
  org_id uuid not null,
  source_uid uuid not null,
  pull_request integer not null,
  -- The head that was planned.
  commit_id text not null,
  -- Keyed digests of the plan, of all of it and by address; null: there was none to show.
  digest text,
  parts jsonb not null default '{}',
  -- When it was seen that it is merged.
  merged_at timestamptz,
  outcome text check (outcome in ('applied', 'not_applied')),
  -- What is told of the outcome.
  message text,
  primary key (org_id, source_uid, pull_request),
  foreign key (org_id, source_uid) references git_source (org_id, uid) on delete cascade
);
select svc_tenant_table('git_source_review', false);

-- Pull requests that a forge told were opened again since the last look.
alter table pull_request_look add column reopened integer[] not null default '{}';
