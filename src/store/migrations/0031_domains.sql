-- Custom domains: who has a host name, and who has shown that it is theirs.

-- A host name that is taken. The row is made with the resource, by the statement that makes it.
create table domain_claim (
  hostname text primary key,
  org_id uuid not null references organization on delete cascade,
  domain_uid uuid not null,
  claimed_at timestamptz not null default now(),
  -- When DNS was last seen to lead here; null: never.
  proved_at timestamptz,
  -- Of the last reconcile that changed anything for the domain: earlier ones change nothing more.
  fence bigint not null default 0,
  foreign key (org_id, domain_uid) references resource (org_id, uid) on delete cascade
);
create index domain_claim_domain on domain_claim (org_id, domain_uid);

-- Who last showed that a host name is theirs. It outlives the domain and the organization: DNS may lead here long after.
create table domain_proof (
  hostname text primary key,
  org_id uuid not null,
  proved_at timestamptz not null default now()
);
create index domain_proof_age on domain_proof (proved_at);

select svc_tenant_table(name, false) from unnest(array['domain_claim', 'domain_proof']) as name;

-- A host name is free where nobody has claimed it, where the domain that did is going or gone, and where its claim was not
-- proved for seven days.
create function svc_claim_domain() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  loop
    insert into domain_claim (hostname, org_id, domain_uid)
      values (new.name, new.org_id, new.uid) on conflict (hostname) do nothing;
    if found then return null; end if;
    -- A statement sees what was committed when it began: the row is held first, and then it is looked whose it is.
    perform from domain_claim where hostname = new.name for update;
    update domain_claim c set org_id = new.org_id, domain_uid = new.uid, claimed_at = now(), proved_at = null, fence = 0
      where c.hostname = new.name and (
        (c.proved_at is null and c.claimed_at < now() - interval '7 days')
        or not exists (select from resource r
          where r.org_id = c.org_id and r.uid = c.domain_uid and r.deletion_requested_at is null));
    if found then return null; end if;
    if exists (select from domain_claim where hostname = new.name) then
      raise exception using errcode = 'SVREF', constraint = 'hostname_taken',
        message = format('The host name %s is in use on this platform', new.name);
    end if;
  end loop;
end
$$;
revoke all on function svc_claim_domain() from public;
create trigger svc_claim_domain after insert on resource
  for each row when (new.kind = 'Domain') execute function svc_claim_domain();
