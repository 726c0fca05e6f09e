-- The token of the last lease, also after that has ended: the next one is higher.
alter table work add column last_token bigint;
-- Milliseconds since 2020, and twelve bits that tell apart what is taken within one of them; programs without large integers
-- can hold that. A sequence alone forgets, when Postgres crashes, what it handed out last; the clock does not, and where
-- somebody sets it back, the row remembers.
create function svc_lease_token(last bigint) returns bigint language sql volatile
  return greatest(coalesce(last, 0) + 1,
    ((extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000) * 4096 + nextval('lease_token') % 4096);
