-- Organizations come and go; who is invited to them; what agents were granted; who may do what with a key.

-- Deletion of an organization is desired state as well: nobody sees it any more, its resources are removed by their
-- reconcilers, and then its row goes.
alter table organization
  add column deletion_requested_at timestamptz,
  -- For If-Match.
  add column revision bigint not null default 1;
create index organization_leaving on organization (deletion_requested_at) where deletion_requested_at is not null;

-- Every slug that an organization has or had lately. A slug that was given up stays reserved, so that nobody else
-- receives what was meant for the organization; deletion frees them all.
create table organization_slug (
  slug text primary key,
  org_id uuid not null references organization on delete cascade,
  reserved_at timestamptz not null default clock_timestamp()
);
create index organization_slug_org on organization_slug (org_id, reserved_at);
insert into organization_slug (slug, org_id) select slug, id from organization;
alter table organization drop constraint organization_slug_key;
create index organization_by_slug on organization (slug) where deletion_requested_at is null;

-- Whoever writes an organization reserves its slug by that. Earlier slugs are kept in small number: renaming again and
-- again must not collect the names of others.
create function organization_slugs() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  if new.deletion_requested_at is not null then
    delete from organization_slug where org_id = new.id;
    return null;
  end if;
  insert into organization_slug as s (slug, org_id) values (new.slug, new.id)
  on conflict (slug) do update set reserved_at = excluded.reserved_at where s.org_id = excluded.org_id;
  if not found then
    raise exception 'the slug % is taken', new.slug
      using errcode = 'unique_violation', constraint = 'organization_slug_pkey';
  end if;
  delete from organization_slug where org_id = new.id and slug not in (
    select slug from organization_slug where org_id = new.id order by reserved_at desc limit 6);
  return null;
end
$$;
create trigger organization_slugs after insert or update of slug, deletion_requested_at on organization
  for each row execute function organization_slugs();

create table invitation (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  -- Normalized: NFKC, lower case.
  email text not null,
  role text not null check (role in ('owner', 'admin', 'member')),
  -- SHA-256 of the token, which exists in the mail only.
  digest bytea not null unique,
  invited_by uuid not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  accepted_at timestamptz,
  accepted_by uuid,
  revoked_at timestamptz,
  primary key (org_id, id)
);
-- One open invitation for an address: inviting again takes the place of the first.
create unique index invitation_open on invitation (org_id, email) where accepted_at is null and revoked_at is null;
create index invitation_age on invitation (expires_at);

create table agent_grant (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  user_id uuid not null,
  client_id text not null,
  client_name text not null,
  audience text not null,
  role text not null check (role in ('admin', 'member')),
  scopes text[] not null,
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  revoked_at timestamptz,
  primary key (org_id, id)
);
create index agent_grant_user on agent_grant (org_id, user_id);

-- A key ends with the membership of whoever made it; forgetting who that was would let it live on.
alter table api_key drop constraint api_key_created_by_fkey;

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['invitation', 'agent_grant', 'organization_slug'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
-- Kept by the trigger alone.
revoke all on organization_slug from svc_api;

-- The members of the organization that the statement named, with what their accounts say of them.
create function svc_members()
returns table (id uuid, user_id uuid, email text, name text, role text, created_at timestamptz)
language sql stable security definer set search_path = public, pg_temp
as $$
  select m.id, m.user_id, a.email, a.name, m.role, m.created_at
  from member m join account a on a.id = m.user_id
  where m.org_id = svc_current_org()
$$;
revoke all on function svc_members() from public;
grant execute on function svc_members() to svc_api, svc_engine;

-- Whoever holds the token of an invitation may learn which organization it is for.
create function svc_invitation(token_digest bytea, reader uuid)
returns table (org_id uuid, id uuid, status text, meant boolean)
language sql stable security definer set search_path = public, pg_temp
as $$
  select i.org_id, i.id,
    case when i.accepted_at is not null then 'accepted' when i.revoked_at is not null then 'revoked'
      when i.expires_at <= now() then 'expired' else 'pending' end,
    exists (select from account a where a.id = reader and lower(normalize(a.email, nfkc)) = i.email)
  from invitation i join organization o on o.id = i.org_id and o.deletion_requested_at is null
  where i.digest = token_digest
$$;
revoke all on function svc_invitation(bytea, uuid) from public;
grant execute on function svc_invitation(bytea, uuid) to svc_api;

-- As before, and: an organization that is being deleted is there for nobody, a key can do no more than whoever made it
-- can do today, and of a session that somebody signed in to it is told when they last proved who they are.
drop function svc_access(text, bytea, text);
create function svc_access(credential_kind text, credential_digest bytea, addressed text)
returns table (
  credential_id uuid, user_id uuid, last_used_at timestamptz, proved_at timestamptz,
  org_id uuid, org_slug text, role text, billing_status text
)
language plpgsql stable security definer set search_path = public, pg_temp
as $$
declare
  wanted uuid := case when addressed ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then addressed::uuid end;
begin
  if credential_kind = 'key' then
    return query
      select k.id, k.created_by, k.last_used_at, null::timestamptz, o.id, o.slug,
        case when m.role = 'member' then m.role else k.role end, o.billing_status
      from api_key k
      left join organization o on o.id = k.org_id and o.deletion_requested_at is null
        and (addressed is null or (case when wanted is null then o.slug = addressed else o.id = wanted end))
      left join member m on m.user_id = k.created_by and m.org_id = k.org_id
      where k.digest = credential_digest and k.revoked_at is null
        and (k.created_by is null or m.role is not null);
  else
    return query
      select s.id, s.user_id, s.last_used_at, case when s.method is not null then s.authenticated_at end,
        o.id, o.slug, m.role, o.billing_status
      from session s
      left join (organization o join member m on m.org_id = o.id)
        on m.user_id = s.user_id and o.deletion_requested_at is null
        and (case when wanted is null then o.slug = addressed else o.id = wanted end)
      where s.digest = credential_digest and s.expires_at > now();
  end if;
end
$$;
revoke all on function svc_access(text, bytea, text) from public;
grant execute on function svc_access(text, bytea, text) to svc_api, svc_engine;
