-- In the order in which statements come to them.
lock table app, app_instance in share row exclusive mode;
create trigger app_power_is_metered after update of power on app for each row
  when ((old.power = 'awake') <> (new.power = 'awake'))
  execute function app_power_is_metered();
create trigger app_instance_is_metered after update of started_at, ended_at on app_instance for each row
  when ((old.started_at is null) <> (new.started_at is null) or (old.ended_at is null) <> (new.ended_at is null))
  execute function app_instance_is_metered();
create trigger app_instance_is_metered_to_its_end after delete on app_instance for each row
  when (old.started_at is not null and old.ended_at is null)
  execute function app_instance_is_metered();
select app_is_metered(org_id, uid) from app;
