-- Budgets: what projects may spend in a month, and what they have spent. Money is whole millionths of a US dollar.

create table project_budget (
  org_id uuid not null references organization on delete cascade,
  project_uid uuid not null,
  -- Null: as much as they like.
  monthly_cap bigint check (monthly_cap >= 0),
  alert_percent integer check (alert_percent between 1 and 100),
  -- Nothing is begun that could cost more than is left.
  hard_stop boolean not null,
  revision bigint not null default 1,
  primary key (org_id, project_uid),
  foreign key (org_id, project_uid) references resource (org_id, uid) on delete cascade
);

-- One row for each month (UTC) in which something was reserved or spent.
create table budget_month (
  org_id uuid not null references organization on delete cascade,
  project_uid uuid not null,
  month date not null,
  spent bigint not null default 0 check (spent >= 0),
  reserved bigint not null default 0 check (reserved >= 0),
  -- What told of it, once a month: passing the threshold, and reaching the cap.
  alert_id uuid,
  exceeded_id uuid,
  primary key (org_id, project_uid, month),
  foreign key (org_id, project_uid) references resource (org_id, uid) on delete cascade
) with (fillfactor = 50);

-- What each thing that costs something has reserved, and what it came to in the end.
create table budget_entry (
  org_id uuid not null references organization on delete cascade,
  uid uuid not null,
  project_uid uuid not null,
  -- In which it was reserved; it is spent in the same.
  month date not null,
  reserved bigint not null check (reserved >= 0),
  reserved_at timestamptz not null default now(),
  spent bigint check (spent >= 0),
  settled_at timestamptz check ((settled_at is null) = (spent is null)),
  primary key (org_id, uid)
);
create index budget_entry_open on budget_entry (reserved_at) where settled_at is null;
create index budget_entry_age on budget_entry (settled_at) where settled_at is not null;

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['project_budget', 'budget_month', 'budget_entry'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
