-- Instances of apps are metered, each for as long as it runs, and count for the hard stop of budgets.

-- What an instance may use, from its making on: by then its app may be of another size.
alter table app_instance add column cpus numeric, add column memory_mb integer;
create function app_instance_has_size() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  select coalesce((spec->>'cpus')::numeric, 0.5), coalesce((spec->>'memoryMb')::integer, 512)
    into new.cpus, new.memory_mb
    from resource where org_id = new.org_id and uid = new.app_uid;
  return new;
end
$$;
create trigger app_instance_has_size before insert on app_instance for each row
  execute function app_instance_has_size();

alter table metered_period
  -- The app that an instance (`uid`) is of, and what the instance may use. Null: a server, whose size says it.
  add column app_uid uuid,
  add column cpus numeric,
  add column memory_mb integer;

-- Ends and begins periods, so that they are what the app is. A paused instance keeps its memory, and uses no processor.
create function app_is_metered(of_org uuid, of_app uuid) returns void
language plpgsql set search_path = public, pg_temp
as $$
begin
  update metered_period p
    set until = greatest(p.since, least(clock_timestamp(), (
      select ended_at from app_instance i where i.org_id = of_org and i.uid = p.uid)))
    where p.org_id = of_org and p.app_uid = of_app and p.until is null and not exists (
      select from app_instance i join app a on a.org_id = i.org_id and a.uid = i.app_uid
      where i.org_id = of_org and i.uid = p.uid and i.ended_at is null
        and p.cpus = case when a.power = 'paused' then 0 else i.cpus end);
  insert into metered_period (org_id, uid, since, project_uid, kind, environment, name, sku, servers, app_uid, cpus,
      memory_mb)
    select of_org, i.uid, clock_timestamp(), r.project_id, r.kind, r.environment, r.name, '', 1, r.uid,
      case when a.power = 'paused' then 0 else i.cpus end, i.memory_mb
    from app_instance i join app a on a.org_id = i.org_id and a.uid = i.app_uid
    join resource r on r.org_id = a.org_id and r.uid = a.uid and r.project_id is not null
    where i.org_id = of_org and i.app_uid = of_app and i.started_at is not null and i.ended_at is null
      -- Of one that is on its way out only what is left is counted.
      and exists (select from organization o where o.id = of_org)
    on conflict (org_id, uid) where until is null do nothing;
end
$$;
create index metered_period_app on metered_period (org_id, app_uid) where app_uid is not null and until is null;

create function app_instance_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform app_is_metered(old.org_id, old.app_uid);
  return null;
end
$$;
create trigger app_instance_is_metered after update of started_at, ended_at on app_instance for each row
  when ((old.started_at is null) <> (new.started_at is null) or (old.ended_at is null) <> (new.ended_at is null))
  execute function app_instance_is_metered();
create trigger app_instance_is_metered_to_its_end after delete on app_instance for each row
  when (old.started_at is not null and old.ended_at is null)
  execute function app_instance_is_metered();
create function app_power_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform app_is_metered(new.org_id, new.uid);
  return null;
end
$$;
create trigger app_power_is_metered after update of power on app for each row
  when ((old.power = 'paused') <> (new.power = 'paused'))
  execute function app_power_is_metered();

update app_instance i
  set cpus = coalesce((r.spec->>'cpus')::numeric, 0.5), memory_mb = coalesce((r.spec->>'memoryMb')::integer, 512)
  from resource r where r.org_id = i.org_id and r.uid = i.app_uid and i.ended_at is null;
select app_is_metered(org_id, uid) from app;

-- Under a hard stop no app is made or may use more; one that sleeps wakes.
create function app_is_larger(before jsonb, after jsonb) returns boolean language sql immutable as $$
  select coalesce(bool_or((after->>field)::numeric > (before->>field)::numeric), false)
  from unnest(array['cpus', 'memoryMb', 'instances', 'maxInstances']) as field
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
