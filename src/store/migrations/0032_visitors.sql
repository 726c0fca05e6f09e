-- Who may see an environment at its addresses: invited addresses, codes that bring visitors back from signing in, and
-- visits. Codes and cookies are random, and of each the store keeps SHA-256 only.

-- Accounts with these e-mail addresses may see the environments of the project whose mode is invite_only.
create table access_invitation (
  org_id uuid not null,
  id uuid not null,
  project_id uuid not null,
  -- Compared in this form: NFKC, lower case.
  email text not null,
  created_at timestamptz not null default now(),
  primary key (org_id, id),
  unique (org_id, project_id, email),
  foreign key (org_id, project_id) references resource (org_id, uid) on delete cascade
);

-- What a visitor brings back from the platform to the host, once. Redeeming is deleting.
create table visit_code (
  org_id uuid not null,
  digest bytea primary key,
  environment_uid uuid not null,
  hostname text not null,
  user_id uuid not null references account on delete cascade,
  -- Of the platform: whoever signs out there takes back what it led to.
  session_id uuid not null references session on delete cascade,
  -- SHA-256 of the cookie that the host gave the browser before it left.
  challenge bytea not null,
  return_path text not null,
  expires_at timestamptz not null,
  foreign key (org_id, environment_uid) references resource (org_id, uid) on delete cascade
);
create index visit_code_session on visit_code (session_id, expires_at);
create index visit_code_account on visit_code (user_id);
create index visit_code_environment on visit_code (org_id, environment_uid);
create index visit_code_age on visit_code (expires_at);

-- A browser that a host has let in: its tickets are renewed as long as this holds. One for each session and host.
create table visit (
  org_id uuid not null,
  digest bytea primary key,
  environment_uid uuid not null,
  hostname text not null,
  user_id uuid not null references account on delete cascade,
  session_id uuid not null references session on delete cascade,
  expires_at timestamptz not null,
  unique (session_id, hostname),
  foreign key (org_id, environment_uid) references resource (org_id, uid) on delete cascade
);
create index visit_account on visit (user_id);
create index visit_environment on visit (org_id, environment_uid);
create index visit_age on visit (expires_at);

select svc_tenant_table('access_invitation'), svc_tenant_table('visit_code', false), svc_tenant_table('visit', false);
revoke all on visit_code, visit from svc_api;

-- What the project's policy says of an environment; `accessModeOf` says the same to programs. What is being deleted
-- together with its policy is not opened before it is gone.
create function svc_access_mode(of_org uuid, of_environment uuid) returns text
language sql stable security definer set search_path = public, pg_temp
as $$
  select coalesce(
    p.spec->'environments'->>e.name,
    case when e.name = 'preview' then nullif(p.spec->>'previewMode', 'inherit') end,
    p.spec->>'mode',
    'public')
  from resource e
  left join resource p on p.org_id = e.org_id and p.kind = 'AccessPolicy' and p.project_id = e.project_id
    and p.deleted_at is null and (p.deletion_requested_at is null or e.deletion_requested_at is not null)
  where e.org_id = of_org and e.uid = of_environment and e.kind = 'Environment'
  order by p.deletion_requested_at nulls first
  limit 1
$$;
revoke all on function svc_access_mode(uuid, uuid) from public;
grant execute on function svc_access_mode(uuid, uuid) to svc_engine;

-- A new site is protected from its first moment.
create function edge_site_access() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  new.access := coalesce(svc_access_mode(new.org_id, new.environment_uid), new.access);
  return new;
end
$$;
create trigger edge_site_access before insert on edge_site
  for each row execute function edge_site_access();

-- May this account see the environment, by the mode that is in force at the edge?
create function svc_may_visit(of_org uuid, of_environment uuid, of_user uuid) returns boolean
language sql stable security definer set search_path = public, pg_temp
as $$
  select coalesce((
    select case s.access
      when 'public' then true
      when 'authenticated' then true
      when 'organization' then exists (
        select from member m where m.user_id = of_user and m.org_id = of_org)
      when 'invite_only' then exists (
        select from account a
        join access_invitation i on i.org_id = of_org and i.project_id = e.project_id
          and i.email = lower(normalize(a.email, nfkc))
        where a.id = of_user)
      else false
    end
    from edge_site s join resource e on e.org_id = s.org_id and e.uid = s.environment_uid
    where s.org_id = of_org and s.environment_uid = of_environment), false)
$$;
revoke all on function svc_may_visit(uuid, uuid, uuid) from public;
grant execute on function svc_may_visit(uuid, uuid, uuid) to svc_engine;
