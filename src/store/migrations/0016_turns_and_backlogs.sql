-- Turns of organizations at cron runs, and how much queues hold.

-- Which organizations have runs that are due: a claim steps from one to the next.
create index cron_run_turn on cron_run (org_id, due_at) where finished_at is null;

-- How much each queue holds, and each organization in all of its queues, so that publishing can be refused without
-- counting messages. Each change of queue_message is added in the same transaction. The sums are spread over several
-- rows, of which a connection writes always the same one: two that publish at once seldom wait for each other.

create table queue_backlog (
  org_id uuid not null,
  -- The zero id: all queues of the organization.
  queue_uid uuid not null,
  part smallint not null,
  messages bigint not null,
  bytes bigint not null,
  primary key (org_id, queue_uid, part)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1);

alter table queue_backlog enable row level security;
create policy tenant on queue_backlog to svc_api using (org_id = (select svc_current_org()));
create policy engine on queue_backlog to svc_engine using (true);

insert into queue_backlog
  select org_id, coalesce(queue_uid, '00000000-0000-0000-0000-000000000000'), 0, count(*), sum(octet_length(body))
  from queue_message group by grouping sets ((org_id, queue_uid), (org_id));

-- In order, the sum of the organization first: two that write the same rows never wait for each other in a circle.
create function queue_backlog_add(orgs uuid[], queues uuid[], counts bigint[], sizes bigint[]) returns void
language sql as $$
  insert into queue_backlog as b (org_id, queue_uid, part, messages, bytes)
    select c.org, coalesce(c.queue, '00000000-0000-0000-0000-000000000000'), pg_backend_pid() % 32, sum(c.number), sum(c.size)
    from unnest(orgs, queues, counts, sizes) as c(org, queue, number, size)
    group by grouping sets ((c.org, c.queue), (c.org)) order by 1, 2
  on conflict (org_id, queue_uid, part)
    do update set messages = b.messages + excluded.messages, bytes = b.bytes + excluded.bytes
$$;

-- The argument is the sign with which the changed messages count.
create function queue_message_counted() returns trigger language plpgsql as $$
begin
  perform queue_backlog_add(array_agg(org_id), array_agg(queue_uid), array_agg(number), array_agg(size))
    from (select org_id, queue_uid, tg_argv[0]::int * count(*) as number, tg_argv[0]::int * sum(octet_length(body)) as size
      from changed group by org_id, queue_uid) c
    having count(*) > 0;
  return null;
end
$$;
create trigger came after insert on queue_message
  referencing new table as changed for each statement execute function queue_message_counted('1');
create trigger went after delete on queue_message
  referencing old table as changed for each statement execute function queue_message_counted('-1');

create function queue_message_moved() returns trigger language plpgsql as $$
begin
  perform queue_backlog_add(array[new.org_id, new.org_id], array[old.queue_uid, new.queue_uid], array[-1, 1],
    array[-octet_length(old.body), octet_length(new.body)]);
  return null;
end
$$;
create trigger moved after update of queue_uid on queue_message for each row
  when (old.queue_uid is distinct from new.queue_uid) execute function queue_message_moved();

create function organization_went() returns trigger language plpgsql as $$
begin
  delete from queue_backlog where org_id = old.id;
  return null;
end
$$;
create trigger backlog_goes after delete on organization for each row execute function organization_went();
