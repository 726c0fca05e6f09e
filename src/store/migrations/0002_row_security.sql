-- The second wall between tenants. `svc_api` runs requests: it sees the rows of the organization named by the
-- setting svc.org_id and nothing when that is not set. `svc_engine` converges the resources of all of them.
-- Both roles are there already: they belong to the whole cluster and are seen to before any migration.
-- Restates 5e86c49283d90e7a22976ede66aabf5243c8e261a353d79d650cc184c835257e

do $$
declare
  role_name text;
begin
  foreach role_name in array array['svc_api', 'svc_engine'] loop
    execute format('grant usage on schema public to %I', role_name);
    execute format('grant select, insert, update, delete on all tables in schema public to %I', role_name);
    execute format('grant usage, select on all sequences in schema public to %I', role_name);
    execute format('alter default privileges in schema public grant select, insert, update, delete on tables to %I', role_name);
    execute format('alter default privileges in schema public grant usage, select on sequences to %I', role_name);
  end loop;
end
$$;

create function svc_current_org() returns uuid
  language sql stable parallel safe
  return nullif(current_setting('svc.org_id', true), '')::uuid;

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array[
    'member', 'api_key', 'resource', 'work', 'pause', 'resource_event', 'secret', 'audit_log', 'plan', 'idempotency'
  ] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;

alter table organization enable row level security;
create policy tenant on organization to svc_api using (id = (select svc_current_org()));
create policy engine on organization to svc_engine using (true);

-- A denied request may have no organization; it is written and never read back through this role.
create policy unaddressed on audit_log for insert to svc_api with check (org_id is null);

-- Sealed values of the platform, and the identities behind credentials, are none of a request's business.
revoke all on platform_secret, session, account from svc_api;

-- The one look across organizations that a request needs: whose credential is this, and what may it do in the
-- addressed organization? No row: the credential does not hold. A row without org_id: no such organization for it.
create function svc_access(credential_kind text, credential_digest bytea, addressed text)
returns table (
  credential_id uuid, user_id uuid, last_used_at timestamptz,
  org_id uuid, org_slug text, role text, billing_status text
)
language plpgsql stable security definer set search_path = public, pg_temp
as $$
declare
  wanted uuid := case when addressed ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then addressed::uuid end;
begin
  if credential_kind = 'key' then
    return query
      select k.id, k.created_by, k.last_used_at, o.id, o.slug, k.role, o.billing_status
      from api_key k
      left join organization o
        on o.id = k.org_id and (addressed is null or (case when wanted is null then o.slug = addressed else o.id = wanted end))
      where k.digest = credential_digest and k.revoked_at is null;
  else
    return query
      select s.id, s.user_id, s.last_used_at, o.id, o.slug, m.role, o.billing_status
      from session s
      left join (organization o join member m on m.org_id = o.id)
        on m.user_id = s.user_id and (case when wanted is null then o.slug = addressed else o.id = wanted end)
      where s.digest = credential_digest and s.expires_at > now();
  end if;
end
$$;
revoke all on function svc_access(text, bytea, text) from public;
grant execute on function svc_access(text, bytea, text) to svc_api, svc_engine;

-- Notes the use of a credential, at most once a minute for each.
create function svc_credential_used(credential_kind text, credential uuid) returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  if credential_kind = 'key' then
    update api_key set last_used_at = now()
    where id = credential and (last_used_at is null or last_used_at < now() - interval '1 minute');
  else
    update session set last_used_at = now(), expires_at = now() + interval '30 days'
    where id = credential and last_used_at < now() - interval '1 minute';
  end if;
end
$$;
revoke all on function svc_credential_used(text, uuid) from public;
grant execute on function svc_credential_used(text, uuid) to svc_api, svc_engine;
