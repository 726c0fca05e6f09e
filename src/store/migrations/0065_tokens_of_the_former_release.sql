-- Processes of the former release take tokens from the sequence alone, which are lower than those of this one: what it has
-- touched would refuse them. They are given one of its own. The release after this one drops the trigger.
create function work_token_rises() returns trigger language plpgsql set search_path = public, pg_temp as $$
begin
  new.lease_token := svc_lease_token(old.last_token);
  new.last_token := new.lease_token;
  return new;
end
$$;
create trigger work_token_rises before update of lease_token on work for each row
  when (new.lease_token <= old.last_token) execute function work_token_rises();
