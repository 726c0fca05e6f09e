-- OAuth 2.1 for agents: requests that wait for a person's decision, codes, and the tokens of grants. Codes and tokens are
-- random, and of each the store keeps SHA-256 only.

-- The refresh token that holds now, and until when; whatever came before it was used. Of the tokens that went out nothing
-- else is kept: each says its grant, and who made it.
alter table agent_grant
  add column refresh_digest bytea,
  add column expires_at timestamptz not null default now() + interval '30 days';
create unique index agent_grant_id on agent_grant (id);
create index agent_grant_age on agent_grant (expires_at);

-- Which organization it will be for, the person decides; until then it belongs to none. Deciding is deleting.
create table authorization_request (
  id uuid primary key,
  client_id text not null,
  client_name text not null,
  redirect_uri text not null,
  state text,
  -- The S256 code challenge (RFC 7636).
  challenge text not null,
  audience text not null check (audience in ('api', 'mcp')),
  role text not null check (role in ('member', 'admin')),
  scopes text[] not null,
  expires_at timestamptz not null
);
create index authorization_request_age on authorization_request (expires_at);
revoke all on authorization_request from svc_api;

-- Kept for a while after it was redeemed, so that a second redemption is told from nonsense.
create table authorization_code (
  org_id uuid not null references organization on delete cascade,
  digest bytea primary key,
  -- The grant that its redemption makes.
  grant_id uuid not null,
  user_id uuid not null,
  client_id text not null,
  client_name text not null,
  redirect_uri text not null,
  challenge text not null,
  audience text not null,
  role text not null check (role in ('member', 'admin')),
  scopes text[] not null,
  expires_at timestamptz not null,
  redeemed_at timestamptz
);
create index authorization_code_age on authorization_code (expires_at);
create index authorization_code_user on authorization_code (org_id, user_id);
select svc_tenant_table('authorization_code', false);
revoke all on authorization_code from svc_api;

create table agent_access_token (
  org_id uuid not null,
  grant_id uuid not null,
  digest bytea primary key,
  expires_at timestamptz not null,
  foreign key (org_id, grant_id) references agent_grant on delete cascade
);
create index agent_access_token_grant on agent_access_token (org_id, grant_id, expires_at);
create index agent_access_token_age on agent_access_token (expires_at);
select svc_tenant_table('agent_access_token', false);
revoke all on agent_access_token from svc_api;

-- A grant never outlives the role it was given in: a later promotion finds it revoked. Whichever statement ends or lowers
-- a membership does this too, also one of the former release.
create function member_grants() returns trigger
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  update agent_grant set revoked_at = now()
  where org_id = old.org_id and user_id = old.user_id and revoked_at is null
    and (tg_op = 'DELETE' or (role = 'admin' and new.role = 'member'));
  delete from authorization_code
  where org_id = old.org_id and user_id = old.user_id and redeemed_at is null
    and (tg_op = 'DELETE' or (role = 'admin' and new.role = 'member'));
  return null;
end
$$;
create trigger member_grants after update of role or delete on member
  for each row execute function member_grants();

-- Stores the tokens of a grant, whose row the caller has locked. What was issued before goes on until it expires, but only
-- the newest few: a client that refreshes without end fills nothing.
create function svc_issue_tokens(
  org uuid, granted uuid, refresh bytea, refresh_seconds float8, access bytea, access_seconds float8
) returns void
language plpgsql set search_path = public, pg_temp
as $$
begin
  update agent_grant set refresh_digest = refresh, expires_at = now() + make_interval(secs => refresh_seconds)
  where org_id = org and id = granted;
  delete from agent_access_token where digest in (
    select t.digest from agent_access_token t where t.org_id = org and t.grant_id = granted
    order by t.expires_at desc offset 4);
  insert into agent_access_token (org_id, grant_id, digest, expires_at)
  values (org, granted, access, now() + make_interval(secs => access_seconds));
end
$$;
revoke all on function svc_issue_tokens(uuid, uuid, bytea, float8, bytea, float8) from public;
grant execute on function svc_issue_tokens(uuid, uuid, bytea, float8, bytea, float8) to svc_engine;

-- Redeems a code (RFC 6749, section 4.1.3). Who redeems holds the code's row, so of two at once the second finds it
-- redeemed: that ends the grant, once. Who cannot prove that the code is theirs ends nothing. A statement that is repeated
-- because its answer was lost brings the same new tokens, and is answered as the first time. `redirect` and `target` are
-- null where the request named none. Besides the answer there is a row of the outcome 'ended' for each grant that had to go.
create function svc_redeem_code(
  code bytea, client text, redirect text, proof text, target text,
  refresh bytea, refresh_seconds float8, access bytea, access_seconds float8
) returns table (outcome text, org uuid, granted uuid, within text[], as_role text)
language plpgsql set search_path = public, pg_temp
as $$
declare
  c authorization_code;
  member_holds boolean;
begin
  select * into c from authorization_code a where a.digest = code;
  -- In the order in which whoever ends the organization or the membership locks them: those find the code or the grant.
  perform from organization o where o.id = c.org_id and o.deletion_requested_at is null for share;
  if found then
    perform from member m where m.org_id = c.org_id and m.user_id = c.user_id
      and (c.role = 'member' or m.role in ('owner', 'admin')) for share;
  end if;
  member_holds := found;
  select * into c from authorization_code a where a.digest = code for update;
  if c.digest is null or c.client_id <> client or c.redirect_uri <> redirect or c.challenge <> proof then
    return query select 'unknown', c.org_id, c.grant_id, null::text[], null::text;
  elsif c.redeemed_at is not null then
    if exists (select from agent_grant g
      where g.org_id = c.org_id and g.id = c.grant_id and g.refresh_digest = refresh and g.revoked_at is null) then
      return query select 'issued', c.org_id, c.grant_id, c.scopes, c.role;
    else
      update agent_grant g set revoked_at = now()
      where g.org_id = c.org_id and g.id = c.grant_id and g.revoked_at is null;
      return query select case when found then 'reused' else 'unknown' end, c.org_id, c.grant_id, null::text[], null::text;
    end if;
  elsif not member_holds or c.expires_at <= now() then
    return query select 'unknown', c.org_id, c.grant_id, null::text[], null::text;
  elsif c.audience <> target then
    return query select 'other_target', c.org_id, c.grant_id, null::text[], null::text;
  else
    update authorization_code a set redeemed_at = now() where a.digest = code;
    -- Those of one person that were unused for longest end where there are too many.
    return query
      with capped as (
        update agent_grant g set revoked_at = now() where g.org_id = c.org_id and g.id in (
          select o.id from agent_grant o
          where o.org_id = c.org_id and o.user_id = c.user_id and o.revoked_at is null and o.expires_at > now()
          order by coalesce(o.last_used_at, o.created_at) desc offset 49)
        returning g.id
      )
      select 'ended', c.org_id, capped.id, null::text[], null::text from capped;
    -- What is over stays to be named by the audit log, as far as people let programs in; not what a program does in a loop.
    delete from agent_grant g where g.org_id = c.org_id and g.id in (
      select o.id from agent_grant o
      where o.org_id = c.org_id and o.user_id = c.user_id and (o.revoked_at is not null or o.expires_at <= now())
      order by o.created_at desc offset 200);
    insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
    values (c.org_id, c.grant_id, c.user_id, c.client_id, c.client_name, c.audience, c.role, c.scopes);
    perform svc_issue_tokens(c.org_id, c.grant_id, refresh, refresh_seconds, access, access_seconds);
    return query select 'issued', c.org_id, c.grant_id, c.scopes, c.role;
  end if;
end
$$;
revoke all on function svc_redeem_code(bytea, text, text, text, text, bytea, float8, bytea, float8) from public;
grant execute on function svc_redeem_code(bytea, text, text, text, text, bytea, float8, bytea, float8) to svc_engine;

-- Exchanges the refresh token of a grant for new tokens (RFC 6749, section 6; RFC 9700, section 4.14.2). The grant's row is
-- locked before anything is decided, so two at once become two in turn, and the second presents a token that was used.
-- `presented` is known to have been issued to this grant. A repeated statement is answered as in svc_redeem_code.
create function svc_refresh_grant(
  asked uuid, presented bytea, client text, target text, wanted text[],
  refresh bytea, refresh_seconds float8, access bytea, access_seconds float8
) returns table (outcome text, org uuid, granted uuid, within text[], as_role text)
language plpgsql set search_path = public, pg_temp
as $$
declare
  g agent_grant;
begin
  select * into g from agent_grant a where a.id = asked for update;
  if g.id is null or g.client_id <> client or g.revoked_at is not null then
    return query select 'unknown', g.org_id, g.id, null::text[], null::text;
  elsif g.refresh_digest = refresh then
    return query select 'issued', g.org_id, g.id, g.scopes, g.role;
  elsif g.refresh_digest is distinct from presented then
    update agent_grant a set revoked_at = now() where a.org_id = g.org_id and a.id = g.id;
    return query select 'reused', g.org_id, g.id, null::text[], null::text;
  elsif g.expires_at <= now() then
    return query select 'unknown', g.org_id, g.id, null::text[], null::text;
  elsif not exists (select from member m where m.org_id = g.org_id and m.user_id = g.user_id
      and (g.role = 'member' or m.role in ('owner', 'admin'))) then
    update agent_grant a set revoked_at = now() where a.org_id = g.org_id and a.id = g.id;
    return query select 'unknown', g.org_id, g.id, null::text[], null::text;
  elsif g.audience <> target then
    return query select 'other_target', g.org_id, g.id, null::text[], null::text;
  elsif not wanted <@ g.scopes then
    return query select 'other_scope', g.org_id, g.id, null::text[], null::text;
  else
    perform svc_issue_tokens(g.org_id, g.id, refresh, refresh_seconds, access, access_seconds);
    return query select 'issued', g.org_id, g.id, g.scopes, g.role;
  end if;
end
$$;
revoke all on function svc_refresh_grant(uuid, bytea, text, text, text[], bytea, float8, bytea, float8) from public;
grant execute on function svc_refresh_grant(uuid, bytea, text, text, text[], bytea, float8, bytea, float8) to svc_engine;

-- As the function of three arguments, which the former release calls, and: a grant's access token holds for its audience
-- and its organization, in the role of the grant, while its user's role reaches that.
create function svc_access(credential_kind text, credential_digest bytea, addressed text, for_audience text)
returns table (
  credential_id uuid, user_id uuid, last_used_at timestamptz, proved_at timestamptz,
  org_id uuid, org_slug text, role text, billing_status text, granted jsonb
)
language plpgsql stable security definer set search_path = public, pg_temp
as $$
declare
  wanted uuid := case when addressed ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then addressed::uuid end;
begin
  if credential_kind = 'key' then
    return query
      select k.id, k.created_by, k.last_used_at, null::timestamptz, o.id, o.slug,
        case when m.role = 'member' then m.role else k.role end, o.billing_status, null::jsonb
      from api_key k
      left join organization o on o.id = k.org_id and o.deletion_requested_at is null
        and (addressed is null or (case when wanted is null then o.slug = addressed else o.id = wanted end))
      left join member m on m.user_id = k.created_by and m.org_id = k.org_id
      where k.digest = credential_digest and k.revoked_at is null
        and (k.created_by is null or m.role is not null);
  elsif credential_kind = 'grant' then
    return query
      select g.id, g.user_id, g.last_used_at, null::timestamptz, o.id, o.slug, g.role, o.billing_status,
        jsonb_build_object('clientId', g.client_id, 'clientName', g.client_name, 'audience', g.audience,
          'role', g.role, 'scopes', to_jsonb(g.scopes))
      from agent_access_token t
      join agent_grant g on g.org_id = t.org_id and g.id = t.grant_id
      join member m on m.org_id = g.org_id and m.user_id = g.user_id
      left join organization o on o.id = g.org_id and o.deletion_requested_at is null
        and (addressed is null or (case when wanted is null then o.slug = addressed else o.id = wanted end))
      where t.digest = credential_digest and t.expires_at > now()
        and g.revoked_at is null and g.audience = for_audience
        and (g.role = 'member' or m.role in ('owner', 'admin'));
  else
    return query
      select s.id, s.user_id, s.last_used_at, case when s.method is not null then s.authenticated_at end,
        o.id, o.slug, m.role, o.billing_status, null::jsonb
      from session s
      left join (organization o join member m on m.org_id = o.id)
        on m.user_id = s.user_id and o.deletion_requested_at is null
        and (case when wanted is null then o.slug = addressed else o.id = wanted end)
      where s.digest = credential_digest and s.expires_at > now();
  end if;
end
$$;
revoke all on function svc_access(text, bytea, text, text) from public;
grant execute on function svc_access(text, bytea, text, text) to svc_api, svc_engine;

create or replace function svc_credential_used(credential_kind text, credential uuid) returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
  if credential_kind = 'key' then
    update api_key set last_used_at = now()
    where id = credential and (last_used_at is null or last_used_at < now() - interval '1 minute');
  elsif credential_kind = 'grant' then
    update agent_grant set last_used_at = now()
    where id = credential and (last_used_at is null or last_used_at < now() - interval '1 minute');
  else
    update session set last_used_at = now(), expires_at = now() + interval '30 days'
    where id = credential and last_used_at < now() - interval '1 minute';
  end if;
end
$$;
