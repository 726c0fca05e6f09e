-- Queues as their reconciler made them, and what waits in them.

-- What is in force of a queue's specification. A queue that is only wanted has no row yet.
create table queue (
  org_id uuid not null references organization on delete cascade,
  uid uuid not null,
  environment_uid uuid not null,
  -- The run that wrote it; earlier ones are refused.
  fence bigint not null,
  paused boolean not null,
  retention_seconds integer not null,
  dead_letter_uid uuid,
  -- Where the app takes batches; null: nobody consumes it.
  path text,
  max_batch_size integer not null,
  max_batch_wait_seconds integer not null,
  max_retries integer not null,
  retry_delay_seconds integer not null,
  primary key (org_id, uid)
);

-- A batch that is under way holds a slot, so there are never more batches than slots, whoever delivers them.
create table queue_slot (
  org_id uuid not null,
  queue_uid uuid not null,
  slot integer not null,
  lease_token bigint,
  lease_until timestamptz not null default '-infinity',
  primary key (org_id, queue_uid, slot),
  foreign key (org_id, queue_uid) references queue on delete cascade
) with (fillfactor = 50);

create table queue_message (
  org_id uuid not null,
  queue_uid uuid not null,
  -- Version 7: in the order of publication, which makes the primary key find the oldest.
  id uuid not null,
  -- JSON, as it is delivered.
  body text not null,
  published_at timestamptz not null default now(),
  -- When it came into this queue; its retention counts from here.
  entered_at timestamptz not null default now(),
  -- When it may be delivered. While somebody delivers it, when that lease ends.
  due_at timestamptz not null,
  attempt integer not null default 0,
  lease_token bigint,
  last_error text,
  -- Given up, and kept where it was because there is no dead letter queue.
  failed boolean not null default false,
  -- The queue that gave it up.
  source_uid uuid,
  primary key (org_id, queue_uid, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index queue_message_due on queue_message (org_id, queue_uid, due_at) where not failed;
create index queue_message_failed on queue_message (org_id, queue_uid) where failed;
create index queue_message_source on queue_message (org_id, source_uid) where source_uid is not null;

-- Keys under which something was published in the last 24 hours. They outlive the messages.
create table queue_key (
  org_id uuid not null,
  queue_uid uuid not null,
  key text not null,
  message_id uuid not null,
  at timestamptz not null default now(),
  primary key (org_id, queue_uid, key)
);
create index queue_key_age on queue_key (at);

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['queue', 'queue_slot', 'queue_message', 'queue_key'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
