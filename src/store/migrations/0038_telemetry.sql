-- Product telemetry: what command lines report, if their users let them, and how far organizations have come.

-- Who sent an event is nowhere: ids are HMACs under a key of the platform's operator.
create table telemetry_event (
  id bigint generated always as identity primary key,
  name text not null,
  at timestamptz not null,
  received_at timestamptz not null default now(),
  anonymous_digest bytea,
  organization_digest bytea,
  channel text not null,
  os text not null,
  arch text not null
);
create index telemetry_event_age on telemetry_event (received_at);

-- Steps that the platform itself saw, each once for its subject: the organization, or a grant to an agent.
create table telemetry_step (
  org_id uuid not null references organization on delete cascade,
  name text not null check (name in ('billing_activated', 'first_deploy_ready', 'agent_connected')),
  subject uuid not null,
  at timestamptz not null default now(),
  primary key (org_id, name, subject)
);
create index telemetry_step_age on telemetry_step (at);

revoke all on telemetry_event from svc_api;
select svc_tenant_table('telemetry_step', false);

-- A step is stored by the statement that takes it: nobody outside can claim one.
create function svc_telemetry_step(of_org uuid, step text, of_subject uuid) returns void
language sql security definer set search_path = public, pg_temp
as $$
  insert into telemetry_step (org_id, name, subject) values (of_org, step, of_subject) on conflict do nothing
$$;
revoke all on function svc_telemetry_step(uuid, text, uuid) from public;
grant execute on function svc_telemetry_step(uuid, text, uuid) to svc_engine;

create function telemetry_agent_connected() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  perform svc_telemetry_step(new.org_id, 'agent_connected', new.id);
  return null;
end
$$;
create trigger telemetry_agent_connected after insert on agent_grant
  for each row execute function telemetry_agent_connected();

create function telemetry_billing_activated() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  perform svc_telemetry_step(new.id, 'billing_activated', new.id);
  return null;
end
$$;
create trigger telemetry_billing_activated after update of billing_status on organization
  for each row when (old.billing_status = 'unpaid' and new.billing_status = 'active')
  execute function telemetry_billing_activated();
