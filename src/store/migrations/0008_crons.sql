-- Cron jobs: the schedules in force, and every run.

-- What the reconciler of a cron job converges: the schedule as the runners see it.
create table cron_schedule (
  org_id uuid not null,
  uid uuid not null,
  environment_uid uuid not null,
  name text not null,
  config jsonb not null,
  -- Of the reconcile that wrote it: older ones write no more.
  fence bigint not null,
  -- The next time that has no row in cron_run yet; absent while the job is switched off.
  next_at timestamptz(3),
  primary key (org_id, uid)
);
create index cron_schedule_due on cron_schedule (next_at) where next_at is not null;

create table cron_run (
  org_id uuid not null,
  id uuid not null,
  cron_uid uuid not null,
  trigger text not null check (trigger in ('schedule', 'manual')),
  status text not null default 'pending'
    check (status in ('pending', 'running', 'succeeded', 'failed', 'timed_out', 'skipped', 'replaced')),
  scheduled_at timestamptz(3) not null,
  created_at timestamptz(3) not null default now(),
  started_at timestamptz(3),
  finished_at timestamptz(3),
  -- Attempts that were begun, and what became of those that ended.
  attempt integer not null default 0,
  attempts jsonb not null default '[]',
  -- Why it came to this end, for people.
  reason text,
  -- When somebody has to look at it: its time, the next attempt, the end of the lease of whoever is at it.
  due_at timestamptz,
  lease_token bigint,
  primary key (org_id, id)
) with (fillfactor = 70);
-- One run for each time of a job, whoever made it.
create unique index cron_run_once on cron_run (cron_uid, scheduled_at) where trigger = 'schedule';
create index cron_run_due on cron_run (due_at) where finished_at is null;
create index cron_run_listing on cron_run (org_id, cron_uid, scheduled_at, id);
create index cron_run_started on cron_run (org_id, cron_uid, started_at) where started_at is not null;
create index cron_run_open on cron_run (org_id, cron_uid) where finished_at is null;
create index cron_run_age on cron_run (finished_at) where finished_at is not null;

do $$
declare
  tenant_table text;
begin
  foreach tenant_table in array array['cron_schedule', 'cron_run'] loop
    execute format('alter table %I enable row level security', tenant_table);
    execute format(
      'create policy tenant on %I to svc_api using (org_id = (select svc_current_org()))', tenant_table);
    execute format('create policy engine on %I to svc_engine using (true)', tenant_table);
  end loop;
end
$$;
-- Requests read schedules; the reconciler alone writes them.
revoke insert, update, delete on cron_schedule from svc_api;
