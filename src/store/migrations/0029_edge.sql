-- The edge: what it serves for which host name, and the nodes that serve it.

-- What answers the requests to an environment, whichever of its names they come by.
create table edge_site (
  org_id uuid not null references organization on delete cascade,
  environment_uid uuid not null,
  -- First label of its managed address; it never changes.
  label text not null unique,
  -- {"address", "port"} or {"address", "port", "tls": name, "host": name}: an address that was judged. Null: nothing answers.
  target jsonb,
  -- Requests are held until there is a target, for a while.
  asleep boolean not null default false,
  -- When a request first came while it was asleep.
  wake_requested_at timestamptz,
  -- Who may see it: public, authenticated, organization or invite_only.
  access text not null default 'public',
  primary key (org_id, environment_uid),
  foreign key (org_id, environment_uid) references resource (org_id, uid) on delete cascade
);

-- Names under which an environment is reached. No two organizations have the same.
create table edge_host (
  hostname text primary key,
  org_id uuid not null,
  environment_uid uuid not null,
  -- The custom domain; null: it is the managed address.
  domain_uid uuid,
  -- Requests are sent on to this name instead.
  redirect_to text,
  hsts_seconds integer not null default 0,
  foreign key (org_id, environment_uid) references edge_site on delete cascade,
  foreign key (org_id, domain_uid) references resource (org_id, uid) on delete cascade
);
create index edge_host_site on edge_host (org_id, environment_uid);
create index edge_host_domain on edge_host (org_id, domain_uid) where domain_uid is not null;

-- An edge: a proxy and the process beside it. It belongs to no organization.
create table edge_node (
  id uuid primary key,
  -- Where its TLS is reached from here: an IP address, and a port.
  address text not null,
  https_port integer not null,
  -- It works while this is in the future.
  alive_until timestamptz not null,
  -- The last question that it answered, with all that was stored before it in place.
  answered bigint not null default 0,
  -- Why it does not serve what it should, for operators.
  fault text,
  started_at timestamptz not null default now()
);
create sequence edge_question;

select svc_tenant_table(name) from unnest(array['edge_site', 'edge_host']) as name;
revoke all on edge_node from svc_api;
grant select on edge_node to svc_api;
grant usage on sequence edge_question to svc_api, svc_engine;

-- Nodes hear what has changed and read it again: `site <environment>`, `host <name>`.
create function edge_site_changed() returns trigger
language plpgsql set search_path = public, pg_temp
as $$
begin
  perform pg_notify('svc_edge', 'site ' || coalesce(new.environment_uid, old.environment_uid));
  return null;
end
$$;
create trigger edge_site_changed after insert or update or delete on edge_site
  for each row execute function edge_site_changed();
create function edge_host_changed() returns trigger
language plpgsql set search_path = public, pg_temp
as $$
begin
  perform pg_notify('svc_edge', 'host ' || coalesce(new.hostname, old.hostname));
  return null;
end
$$;
create trigger edge_host_changed after insert or update or delete on edge_host
  for each row execute function edge_host_changed();
