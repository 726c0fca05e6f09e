-- Certificates of the edge, the orders under way for them, and what answers the challenges of those.

create table edge_certificate (
  -- A host name, or `*.` and the apps domain.
  name text primary key,
  -- Null: the platform's own.
  org_id uuid references organization on delete cascade,
  -- pending: there is none yet. issued: there is one. failed: there is none, and no waiting helps.
  state text not null default 'pending' check (state in ('pending', 'issued', 'failed')),
  -- internal, acme or operator. Null: there is none yet.
  issuer text,
  -- Of the ACME authority that issued it.
  directory text,
  -- PEM, the leaf first.
  chain text,
  -- The private key, PKCS #8 in PEM.
  key_id text,
  sealed bytea,
  -- SHA-256 of the leaf in hexadecimal.
  fingerprint text,
  not_before timestamptz,
  not_after timestamptz,
  -- When the next one is to be got.
  renew_at timestamptz,
  -- Why the last try came to nothing, in the words of whoever refused; null: it did not.
  error text,
  error_type text,
  -- Tries since the last that went well.
  attempt integer not null default 0,
  -- The last of these.
  tried_at timestamptz,
  -- The issuer wants to hear nothing before that.
  retry_after timestamptz,
  -- The next look; null: somebody has to ask for one. Of a row under way: the end of its lease.
  due_at timestamptz default now(),
  lease_token bigint,
  created_at timestamptz not null default now(),
  check ((chain is null) = (sealed is null) and (chain is null) = (state <> 'issued'))
);
create index edge_certificate_due on edge_certificate (due_at) where due_at is not null;
create index edge_certificate_org on edge_certificate (org_id) where org_id is not null;

-- What is asked of an ACME server now. It is stored before the order is finalized, and goes when the certificate is
-- stored, so that a process that vanishes leaves an order that the next one finishes.
create table edge_certificate_order (
  name text primary key references edge_certificate on delete cascade,
  -- The account's directory: an order means nothing to another.
  directory text not null,
  order_url text not null,
  -- The private key of the certificate to come.
  key_id text not null,
  sealed bytea not null,
  created_at timestamptz not null default now()
);

-- RFC 8555, section 8.3. Every edge answers for every host.
create table edge_challenge (
  host text not null,
  token text not null,
  key_authorization text not null,
  expires_at timestamptz not null,
  primary key (host, token)
);
create index edge_challenge_age on edge_challenge (expires_at);

select svc_tenant_table('edge_certificate', false);
revoke all on edge_certificate_order, edge_challenge from svc_api;

-- `certificate <name>`: it is another one, or another thing is to be said about it.
create function edge_certificate_changed() returns trigger
language plpgsql set search_path = public, pg_temp
as $$
begin
  perform pg_notify('svc_edge', 'certificate ' || coalesce(new.name, old.name));
  return null;
end
$$;
create trigger edge_certificate_changed after insert or delete on edge_certificate
  for each row execute function edge_certificate_changed();
create trigger edge_certificate_updated after update on edge_certificate
  for each row when (
    old.fingerprint is distinct from new.fingerprint or old.state is distinct from new.state
    or old.error is distinct from new.error)
  execute function edge_certificate_changed();

-- `<name>`: there is something to do now.
create function edge_certificate_wanted() returns trigger
language plpgsql set search_path = public, pg_temp
as $$
begin
  perform pg_notify('svc_edge_certificates', new.name);
  return null;
end
$$;
create trigger edge_certificate_wanted after insert or update of due_at on edge_certificate
  for each row when (new.lease_token is null and new.due_at <= now()) execute function edge_certificate_wanted();
