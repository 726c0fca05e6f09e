-- What an instance may use. Who makes its container says so; until then, and of a former release, it is what the app wants.
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
update app_instance i
  set cpus = coalesce((r.spec->>'cpus')::numeric, 0.5), memory_mb = coalesce((r.spec->>'memoryMb')::integer, 512)
  from resource r where r.org_id = i.org_id and r.uid = i.app_uid and i.ended_at is null;
