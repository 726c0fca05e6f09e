-- Limits and steps of measurements.

-- What was stored of a project's speed measurements on a day (UTC) of arrival.
create table speed_intake (
  org_id uuid not null,
  project_uid uuid not null,
  day date not null,
  events bigint not null,
  -- Of the bodies of the requests.
  bytes bigint not null,
  primary key (org_id, project_uid, day)
) with (fillfactor = 50);
create index speed_intake_age on speed_intake (day);
select svc_tenant_table('speed_intake', false);

-- The first deployment of an organization that was ready. A step is stored by the statement that takes it.
create function telemetry_first_deploy_ready() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  perform svc_telemetry_step(new.org_id, 'first_deploy_ready', new.org_id);
  return null;
end
$$;
create trigger telemetry_first_deploy_ready after update of state on deployment
  for each row when (old.state <> 'ready' and new.state = 'ready')
  execute function telemetry_first_deploy_ready();
insert into telemetry_step (org_id, name, subject, at)
  select d.org_id, 'first_deploy_ready', d.org_id, min(d.ready_at) from deployment d
  join organization o on o.id = d.org_id
  where d.ready_at is not null group by d.org_id
  on conflict do nothing;
