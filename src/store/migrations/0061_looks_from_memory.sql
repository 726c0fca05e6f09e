-- What is settled is looked at by the process that its slot belongs to, from that process's memory, without a lease.
-- The slots are shared out among the processes that are alive.
create table engine_process (
  id uuid primary key,
  region text not null,
  lease_until timestamptz not null
);
-- The next look at it is kept in memory. due_at then says when the queue takes it up if nobody has done so by then.
alter table work add column kept boolean not null default false;
-- One of 256, by the last byte of the uid: of a UUID of any version it is random.
create function svc_slot(uid uuid) returns integer language sql immutable parallel safe
  return get_byte(uuid_send(uid), 15);
grant select, insert, update, delete on engine_process to svc_engine;
