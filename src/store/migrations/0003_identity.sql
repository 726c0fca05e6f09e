-- How people prove who they are, and the mail that is sent to them.

alter table account add column updated_at timestamptz not null default now();

alter table session
  -- `password`, `link` or `oidc:<provider>`; absent for one that was handed out on the server itself.
  add column method text,
  -- When its holder last proved who they are. What changes the proof itself asks for a recent one.
  add column authenticated_at timestamptz not null default now(),
  add column address text,
  add column user_agent text;
create index session_by_user on session (user_id);
create index session_age on session (expires_at);

-- Apart from the account, so that nothing that reads accounts comes near it.
create table password (
  user_id uuid primary key references account on delete cascade,
  -- A PHC string: the algorithm, its cost, the salt and the hash.
  hash text not null,
  changed_at timestamptz not null default now()
);

-- Who somebody is elsewhere. An issuer's subject never changes hands, an address may.
create table external_identity (
  issuer text not null,
  subject text not null,
  user_id uuid not null references account on delete cascade,
  created_at timestamptz not null default now(),
  last_used_at timestamptz not null default now(),
  primary key (issuer, subject)
);
create index external_identity_user on external_identity (user_id);

-- What is sent by mail to prove that somebody reads an address. Used once: using it is deleting it.
create table mail_token (
  digest bytea primary key,
  purpose text not null check (purpose in ('sign_in', 'password_reset')),
  email text not null,
  -- What the mail's reader asked for beside that: a name, a place to go on to. No secret.
  details jsonb not null default '{}',
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index mail_token_email on mail_token (email, purpose, created_at);
create index mail_token_age on mail_token (expires_at);

-- Mail is desired state until it is sent. Whoever promises a mail inserts its row in the statement that makes it
-- necessary; a loop delivers it. What it says is sealed, because it holds tokens, and goes once it is sent.
create table mail_outbox (
  id uuid primary key,
  -- The organization that it is about, if it is about one: the mail goes with it.
  org_id uuid references organization on delete cascade,
  template text not null,
  recipient text not null,
  key_id text,
  sealed bytea,
  state text not null default 'waiting' check (state in ('waiting', 'sent', 'failed')),
  created_at timestamptz not null default now(),
  -- Of no use after that.
  expires_at timestamptz not null,
  due_at timestamptz not null default now(),
  attempt integer not null default 0,
  lease_token bigint,
  last_error text,
  settled_at timestamptz,
  check ((state = 'waiting') = (sealed is not null)),
  check ((key_id is null) = (sealed is null))
);
create index mail_outbox_due on mail_outbox (due_at) where state = 'waiting';
create index mail_outbox_age on mail_outbox (settled_at) where settled_at is not null;
create index mail_outbox_key on mail_outbox (key_id) where key_id is not null;

create function mail_waits() returns trigger language plpgsql as $$
begin
  perform pg_notify('svc_mail', '');
  return null;
end
$$;
create trigger mail_waits after insert on mail_outbox for each statement execute function mail_waits();

-- Requests may promise a mail about their own organization, and read none of this.
revoke all on password, external_identity, mail_token, mail_outbox from svc_api;
grant insert on mail_outbox to svc_api;
alter table mail_outbox enable row level security;
create policy tenant on mail_outbox for insert to svc_api with check (org_id = (select svc_current_org()));
create policy engine on mail_outbox to svc_engine using (true);
