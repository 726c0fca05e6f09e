-- Webhooks: who wants to be told of what, what happened, and who was told of it.

create table webhook (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  url text not null,
  -- In the order of the list in src/webhooks/event-types.ts.
  events text[] not null check (cardinality(events) > 0),
  -- The signing secret, and after it the one that it replaced, which signs as well until previous_until.
  key_id text not null,
  sealed bytea not null,
  previous_until timestamptz,
  -- Since the secret was made or replaced: of two replacements at once one is refused.
  secret_version integer not null default 1,
  -- Of the first failure since anything arrived.
  failing_since timestamptz,
  disabled_at timestamptz,
  disabled_reason text check ((disabled_reason is null) = (disabled_at is null)),
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, id),
  unique (org_id, url)
);
create index webhook_key on webhook (key_id);

-- What happened, once for all who are told. The statement that makes it happen writes it.
create table webhook_event (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  type text not null,
  project_id uuid,
  data jsonb not null,
  created_at timestamptz not null default now(),
  primary key (org_id, id)
);
create index webhook_event_age on webhook_event (created_at);

create table webhook_delivery (
  org_id uuid not null,
  id uuid not null default gen_random_uuid(),
  seq bigint not null generated always as identity,
  webhook_id uuid not null,
  event_id uuid not null,
  state text not null default 'waiting' check (state in ('waiting', 'delivered', 'failed')),
  -- While somebody tries: when the next one may, should that one vanish.
  due_at timestamptz not null default now(),
  lease_token bigint,
  -- What became of each try, oldest first.
  attempts jsonb not null default '[]',
  created_at timestamptz not null default now(),
  settled_at timestamptz check ((settled_at is null) = (state = 'waiting')),
  primary key (org_id, id),
  foreign key (org_id, webhook_id) references webhook (org_id, id) on delete cascade,
  foreign key (org_id, event_id) references webhook_event (org_id, id) on delete cascade
);
-- The queue of each endpoint, so that claiming steps from one to the next however long one of them is.
create index webhook_delivery_due on webhook_delivery (webhook_id, due_at) where state = 'waiting';
create index webhook_delivery_next on webhook_delivery (due_at) where state = 'waiting';
create index webhook_delivery_list on webhook_delivery (org_id, webhook_id, seq);
create index webhook_delivery_event on webhook_delivery (org_id, event_id);

create function webhook_waits() returns trigger language plpgsql as $$
begin
  perform pg_notify('svc_webhook', '');
  return null;
end
$$;
create trigger webhook_waits after insert on webhook_delivery for each statement execute function webhook_waits();

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['webhook', 'webhook_event', 'webhook_delivery'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
