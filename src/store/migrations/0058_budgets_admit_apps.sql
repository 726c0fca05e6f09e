-- Under a hard stop no app is made or may use more; one that sleeps wakes.
create function app_is_larger(before jsonb, after jsonb) returns boolean language sql immutable as $$
  -- What a former release has not stored is what it was by default.
  select bool_or(coalesce((after->>field)::numeric, usual) > coalesce((before->>field)::numeric, usual))
  from (values ('cpus', 0.5), ('memoryMb', 512), ('instances', 1), ('maxInstances', 1)) as fields(field, usual)
$$;
create trigger budget_admits_app after insert on resource for each row when (new.kind = 'App')
  execute function budget_admits();
create trigger budget_admits_larger_app after update of spec on resource for each row
  when (new.kind = 'App' and new.deletion_requested_at is null and app_is_larger(old.spec, new.spec))
  execute function budget_admits();

-- The engine hears of what a process of the former release set: until then its resource was behind.
create or replace function budget_of_former_release() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
declare
  wanted jsonb := jsonb_build_object('monthlyCapUsd', trim_scale(new.monthly_cap::numeric / 1000000),
    'alertThresholdPercent', new.alert_percent, 'hardStop', new.hard_stop);
  of_resource uuid;
  current integer;
begin
  -- Queue entries are locked before resources, as everywhere.
  perform from work w join resource r on r.org_id = w.org_id and r.uid = w.uid
    where r.org_id = new.org_id and r.kind = 'Budget' and r.project_id = new.project_uid
    for update of w;
  update resource set spec = wanted, generation = generation + 1, references_generation = generation + 1,
      revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
    where org_id = new.org_id and kind = 'Budget' and project_id = new.project_uid and environment is null
      and name = 'budget' and deletion_requested_at is null
    returning uid, generation into of_resource, current;
  if found then
    update work set waiting_on = null, again = true,
        due_at = case when lease_until > now() then due_at else now() end,
        rank = case when lease_until > now() then due_at else now() end
      where org_id = new.org_id and uid = of_resource;
  else
    insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by, references_generation)
      values (new.org_id, gen_random_uuid(), 'Budget', new.project_uid, 'budget', new.project_uid, wanted, 'api', 1)
      returning uid into of_resource;
    insert into work (org_id, uid, kind) values (new.org_id, of_resource, 'Budget');
    current := 1;
  end if;
  update project_budget set uid = of_resource, generation = current
    where org_id = new.org_id and project_uid = new.project_uid;
  perform pg_notify('svc_work', ''), pg_notify('svc_change', new.org_id::text);
  return null;
end
$$;
