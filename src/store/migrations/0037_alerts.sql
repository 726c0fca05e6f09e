-- Alerts: the rules in force with their state, what has become of each, and the mails that are to tell of it.

create table alert (
  org_id uuid not null references organization on delete cascade,
  uid uuid not null,
  project_id uuid not null,
  name text not null,
  -- The specification in force, complete, and its threshold where it states none.
  config jsonb not null,
  threshold float8 not null,
  -- The highest run of a reconcile that put it in force.
  fence bigint not null,
  -- Rises with every change of the row: who decided by an older one writes nothing.
  version bigint not null default 0,
  state text not null default 'no_data' check (state in ('ok', 'pending', 'firing', 'no_data')),
  state_since timestamptz not null default now(),
  -- Its history says that nothing is measured any more, and not yet that something is again.
  missed boolean not null default false,
  -- Seconds for which the condition has held (pending) or has not (firing). Null: nothing is counted.
  counted_seconds float8,
  -- The resource that it fires about, and its value when it began to.
  resource_uid uuid,
  resource jsonb,
  value float8,
  -- It fires by old values alone since then: nothing new is measured.
  data_lost_at timestamptz,
  -- One id from firing to resolution.
  incident_id uuid check ((incident_id is null) = (state <> 'firing')),
  -- When it was told that this incident fires. Null: a silence, a cooldown or an acknowledgement kept it back.
  told_at timestamptz,
  -- Of any incident.
  last_told_at timestamptz,
  acknowledged_at timestamptz,
  acknowledged_by text,
  silenced_until timestamptz,
  silenced_by text,
  silence_reason text,
  primary key (org_id, uid)
) with (fillfactor = 70);
create index alert_project on alert (org_id, project_id);

-- When each organization's alerts were evaluated, and are to be again.
create table alert_turn (
  org_id uuid primary key references organization on delete cascade,
  looked_at timestamptz not null default now(),
  due_at timestamptz not null default now(),
  -- The last evaluation failed: the next one is of this organization alone.
  alone boolean not null default false
) with (fillfactor = 70);

create table alert_history (
  org_id uuid not null,
  id uuid not null default gen_random_uuid(),
  seq bigint not null generated always as identity,
  alert_uid uuid not null,
  at timestamptz not null default now(),
  -- What happened: src/alerts/words.ts lists it.
  change text not null,
  value float8,
  threshold float8,
  resource jsonb,
  incident_id uuid,
  -- Who did it, or why it happened.
  actor text,
  reason text,
  -- The event that webhooks and mails tell of. Null: nobody was told.
  event_id uuid,
  primary key (org_id, id),
  foreign key (org_id, alert_uid) references alert on delete cascade
);
create index alert_history_list on alert_history (org_id, alert_uid, seq);
create index alert_history_age on alert_history (at);

-- The mails of an event that are promised: the statement that decides on them cannot seal their text, so a loop hands
-- them over.
create table alert_mail (
  org_id uuid not null references organization on delete cascade,
  event_id uuid not null,
  type text not null check (type in ('alert.firing', 'alert.resolved')),
  project_id uuid not null,
  -- Addresses of members, and null for all owners and admins.
  destinations text[] not null,
  data jsonb not null,
  created_at timestamptz not null default now(),
  handed_at timestamptz,
  -- How many mails they became,
  sent integer not null default 0,
  -- and for each destination the ids of its mails, of which one may serve several; none where nobody of the organization
  -- has the address. Null although they were handed over: the organization had sent too many.
  mails jsonb,
  primary key (org_id, event_id),
  check (handed_at is not null or mails is null)
);
create index alert_mail_waiting on alert_mail (created_at) where handed_at is null;
create index alert_mail_recent on alert_mail (org_id, handed_at) where handed_at is not null;
create index alert_mail_age on alert_mail (handed_at) where handed_at is not null;

select svc_tenant_table('alert');
select svc_tenant_table('alert_history');
select svc_tenant_table('alert_mail', false);
select svc_tenant_table('alert_turn', false);
revoke all on alert_turn from svc_api;

-- How far mails about the organization that the statement named have come.
create function svc_mail_states(mails uuid[])
returns table (id uuid, state text)
language sql stable security definer set search_path = public, pg_temp
as $$
  select o.id, o.state from mail_outbox o where o.id = any(mails) and o.org_id = svc_current_org()
$$;
revoke all on function svc_mail_states(uuid[]) from public;
grant execute on function svc_mail_states(uuid[]) to svc_api, svc_engine;
