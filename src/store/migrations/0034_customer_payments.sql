-- Customer payments: what is kept of a connection, of objects at Stripe, of the requests that make them, and of events.

create table payment_connection (
  org_id uuid not null,
  uid uuid not null,
  -- The signing secrets of webhooks that are in force, and the fingerprint of the one that its owner gave last.
  key_id text not null,
  sealed bytea not null,
  webhook_secret text not null,
  -- The webhook endpoint at Stripe that the platform made.
  endpoint_id text,
  -- Fingerprint of a secret key that Stripe refused while it was used.
  refused_key text,
  -- The highest number of a reconcile that changed this.
  fence bigint not null,
  -- Comparing with Stripe's lists: when the next page is due, and which one it is.
  due_at timestamptz not null default now(),
  lease_token bigint,
  compare_type text,
  compare_after text,
  compare_since timestamptz,
  primary key (org_id, uid),
  foreign key (org_id, uid) references resource (org_id, uid) on delete cascade
);
create unique index payment_connection_uid on payment_connection (uid);
create index payment_connection_key on payment_connection (key_id);
create index payment_connection_due on payment_connection (due_at);

-- Objects at Stripe as they were seen last.
create table payment_object (
  org_id uuid not null,
  id uuid not null,
  connection_uid uuid not null,
  type text not null,
  processor_id text not null,
  content jsonb not null,
  -- Ids of Stripe's, of what it belongs to.
  product text,
  customer text,
  price text,
  -- It was deleted at Stripe.
  gone boolean not null default false,
  created_at timestamptz not null,
  updated_at timestamptz not null default now(),
  -- When Stripe was asked for what is stored, by the clock of the store: an answer to an earlier question changes nothing.
  looked_at timestamptz not null,
  primary key (org_id, id),
  unique (org_id, connection_uid, processor_id),
  foreign key (org_id, connection_uid) references resource (org_id, uid) on delete cascade
);
create index payment_object_listing on payment_object (org_id, connection_uid, type, created_at, id) where not gone;
create index payment_object_looked on payment_object (org_id, connection_uid, type, looked_at) where not gone;

-- Requests that make something at Stripe, stored before Stripe is asked.
create table payment_intent (
  org_id uuid not null,
  -- Also of the object that it makes.
  id uuid not null,
  connection_uid uuid not null,
  -- The idempotency key at Stripe, without the number of the attempt.
  key text not null,
  digest bytea not null,
  attempt integer not null default 1,
  -- What it made.
  processor_id text,
  created_at timestamptz not null default now(),
  primary key (org_id, id),
  unique (org_id, connection_uid, key),
  foreign key (org_id, connection_uid) references resource (org_id, uid) on delete cascade
);
create index payment_intent_age on payment_intent (created_at);

-- Webhooks that came, once each, without their content: the object is asked for anew.
create table payment_event (
  org_id uuid not null,
  id uuid not null,
  connection_uid uuid not null,
  processor_id text not null,
  type text not null,
  object_type text,
  object_id text,
  status text not null check (status in ('pending', 'processing', 'processed', 'ignored', 'failed')),
  -- Why it was ignored or failed, or why the last attempt did.
  reason text,
  attempts integer not null default 0,
  occurred_at timestamptz not null,
  received_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null default now(),
  lease_token bigint,
  primary key (org_id, id),
  unique (org_id, connection_uid, processor_id),
  foreign key (org_id, connection_uid) references resource (org_id, uid) on delete cascade
) with (autovacuum_vacuum_scale_factor = 0.02);
create index payment_event_listing on payment_event (org_id, connection_uid, received_at, id);
create index payment_event_due on payment_event (connection_uid, due_at) where status in ('pending', 'processing');
create index payment_event_object on payment_event (connection_uid, object_id)
  where status in ('pending', 'processing');
create index payment_event_next on payment_event (due_at) where status in ('pending', 'processing');
create index payment_event_age on payment_event (received_at);

select svc_tenant_table(name) from unnest(array['payment_connection', 'payment_object', 'payment_intent',
  'payment_event']) as name;
