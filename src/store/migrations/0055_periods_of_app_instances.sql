-- Instances of apps are metered, each for as long as it runs.

alter table metered_period
  -- The app that an instance (`uid`) is of, and what the instance may use. Null: a server, whose size says it.
  add column app_uid uuid,
  add column cpus numeric,
  add column memory_mb integer;

-- Ends and begins periods, so that they are what the app is. A paused instance keeps its memory, and uses no processor; so
-- does one that is stopped out of its pause.
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
        and p.cpus = case when a.power = 'awake' then i.cpus else 0 end);
  insert into metered_period (org_id, uid, since, project_uid, kind, environment, name, sku, servers, app_uid, cpus,
      memory_mb)
    select of_org, i.uid, clock_timestamp(), r.project_id, r.kind, r.environment, r.name, '', 1, r.uid,
      case when a.power = 'awake' then i.cpus else 0 end, i.memory_mb
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

create function app_power_is_metered() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  perform app_is_metered(new.org_id, new.uid);
  return null;
end
$$;
