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

-- A project's budget is a resource of the kind Budget; this table holds what is in force of it: which resource and
-- generation, and the fence of the last reconcile that saw to it.
alter table project_budget add column uid uuid, add column generation integer not null default 0,
  add column fence bigint not null default 0;

-- Processes of the former release set budgets here alone, and count `revision`: the resource follows.
create function budget_of_former_release() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
declare
  wanted jsonb := jsonb_build_object('monthlyCapUsd', trim_scale(new.monthly_cap::numeric / 1000000),
    'alertThresholdPercent', new.alert_percent, 'hardStop', new.hard_stop);
  of_resource uuid;
  current integer;
begin
  update resource set spec = wanted, generation = generation + 1, references_generation = generation + 1,
      revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
    where org_id = new.org_id and kind = 'Budget' and project_id = new.project_uid and environment is null
      and name = 'budget' and deletion_requested_at is null
    returning uid, generation into of_resource, current;
  if not found then
    insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by, references_generation)
      values (new.org_id, gen_random_uuid(), 'Budget', new.project_uid, 'budget', new.project_uid, wanted, 'api', 1)
      returning uid into of_resource;
    insert into work (org_id, uid, kind) values (new.org_id, of_resource, 'Budget');
    current := 1;
  end if;
  update project_budget set uid = of_resource, generation = current
    where org_id = new.org_id and project_uid = new.project_uid;
  return null;
end
$$;
revoke all on function budget_of_former_release() from public;
create trigger budget_of_former_release_made after insert on project_budget for each row when (new.generation = 0)
  execute function budget_of_former_release();
create trigger budget_of_former_release after update of revision on project_budget for each row
  execute function budget_of_former_release();
update project_budget b set revision = b.revision
  from resource r where r.org_id = b.org_id and r.uid = b.project_uid and r.deletion_requested_at is null;
