-- AI gateways: their keys, what calls reserve and cost, and the tokens of apps. Money is whole billionths of a US dollar.

create table ai_gateway_key (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  gateway_uid uuid not null,
  name text not null,
  key_prefix text not null,
  -- SHA-256: keys are random.
  digest bytea not null unique,
  last_used_at timestamptz,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  primary key (org_id, id),
  foreign key (org_id, gateway_uid) references resource (org_id, uid) on delete cascade
);
create index ai_gateway_key_listing on ai_gateway_key (org_id, gateway_uid, created_at, id);

-- Tokens that apps of an environment present. One has no end: it is what apps are given. The one that it replaced
-- holds until its end.
create table app_service_token (
  org_id uuid not null references organization on delete cascade,
  id uuid not null,
  environment_uid uuid not null,
  digest bytea not null unique,
  key_id text not null,
  sealed bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  primary key (org_id, id),
  foreign key (org_id, environment_uid) references resource (org_id, uid) on delete cascade
);
create unique index app_service_token_current on app_service_token (org_id, environment_uid)
  where expires_at is null;
create index app_service_token_age on app_service_token (expires_at);

-- One row for each gateway and month (UTC): all reservations of the gateway pass it.
create table ai_gateway_month (
  org_id uuid not null references organization on delete cascade,
  gateway_uid uuid not null,
  month date not null,
  spent bigint not null default 0 check (spent >= 0),
  reserved bigint not null default 0 check (reserved >= 0),
  requests bigint not null default 0,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  -- When webhooks were told of it.
  alerted_at timestamptz,
  exceeded_at timestamptz,
  primary key (org_id, gateway_uid, month),
  foreign key (org_id, gateway_uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- What the month's row sums up, by day (UTC), model and key.
create table ai_gateway_usage (
  org_id uuid not null references organization on delete cascade,
  gateway_uid uuid not null,
  day date not null,
  model text not null,
  -- The zero id: apps with their token.
  gateway_key uuid not null,
  requests bigint not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  spent bigint not null,
  primary key (org_id, gateway_uid, day, model, gateway_key),
  foreign key (org_id, gateway_uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Calls under way, with the most that each can cost. The row is the permission to settle the call, once.
create table ai_gateway_reservation (
  org_id uuid not null,
  id uuid not null,
  gateway_uid uuid not null,
  gateway_key uuid,
  model text not null,
  -- The process that makes the call.
  holder uuid not null,
  -- It is counted in this day and its month, whenever it ends.
  day date not null,
  amount bigint not null check (amount >= 0),
  reserved_at timestamptz not null default now(),
  primary key (org_id, id)
) with (autovacuum_vacuum_scale_factor = 0.02);
create index ai_gateway_reservation_age on ai_gateway_reservation (reserved_at);

-- Processes that hold reservations. What one of them left is settled by the others once its lease has ended.
create table ai_gateway_holder (
  id uuid primary key,
  alive_until timestamptz not null
);

-- Calls that have ended, without what was said in them.
create table ai_gateway_request (
  org_id uuid not null,
  gateway_uid uuid not null,
  id uuid not null,
  gateway_key uuid,
  model text not null,
  upstream text,
  -- The HTTP status of the answer; null: the process that made the call died.
  status integer,
  input_tokens bigint not null,
  output_tokens bigint not null,
  -- The upstream did not say what was used.
  estimated boolean not null,
  cost bigint not null,
  latency_ms integer,
  ended_at timestamptz not null default now(),
  primary key (org_id, gateway_uid, id)
);
create index ai_gateway_request_age on ai_gateway_request (ended_at);

select svc_tenant_table(name) from unnest(array['ai_gateway_key', 'app_service_token', 'ai_gateway_month',
  'ai_gateway_usage', 'ai_gateway_reservation', 'ai_gateway_request']) as name;
revoke all on ai_gateway_holder from svc_api;

-- Whose token is this, and which gateway does it reach by this name? The one look across organizations that a call
-- needs. No row: the token does not hold. A row without a gateway: there is none of this name for it.
create function svc_ai_caller(caller_digest bytea, gateway_name text)
returns table (
  org_id uuid, billing_status text, project_id uuid, environment text, credential_id uuid, is_key boolean,
  last_used_at timestamptz, gateway_uid uuid, spec jsonb
)
language sql stable security definer set search_path = public, pg_temp
as $$
  select o.id, o.billing_status, g.project_id, g.environment, k.id, true, k.last_used_at,
    case when g.name = gateway_name then g.uid end, case when g.name = gateway_name then g.spec end
  from ai_gateway_key k
  join organization o on o.id = k.org_id
  join resource g on g.org_id = k.org_id and g.uid = k.gateway_uid
    and g.deletion_requested_at is null and g.deleted_at is null
  where k.digest = caller_digest and k.revoked_at is null
  union all
  select o.id, o.billing_status, e.project_id, e.name, t.id, false, null, g.uid, g.spec
  from app_service_token t
  join organization o on o.id = t.org_id
  join resource e on e.org_id = t.org_id and e.uid = t.environment_uid
    and e.deletion_requested_at is null and e.deleted_at is null
  left join resource g on g.org_id = e.org_id and g.kind = 'AiGateway' and g.project_id = e.project_id
    and g.environment = e.name and g.name = gateway_name
    and g.deletion_requested_at is null and g.deleted_at is null
  where t.digest = caller_digest and (t.expires_at is null or t.expires_at > now())
$$;
revoke all on function svc_ai_caller(bytea, text) from public;
grant execute on function svc_ai_caller(bytea, text) to svc_api, svc_engine;
