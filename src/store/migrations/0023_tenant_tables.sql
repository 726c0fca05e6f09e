-- For migrations that add a table of organizations: rows of one organization are seen by requests that name it, and all
-- of them by the engine. Requests may not write where `api_writes` is false. What is granted on new tables is in 0002.
create function svc_tenant_table(tenant_table text, api_writes boolean default true) returns void
language plpgsql set search_path = public, pg_temp
as $$
begin
  execute format('alter table %I enable row level security', tenant_table);
  execute format('create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
  execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  if not api_writes then
    execute format('revoke insert, update, delete on %I from svc_api', tenant_table);
  end if;
end
$$;
revoke all on function svc_tenant_table(text, boolean) from public;
