-- What stays true of a real thing whether or not it can be seen. Recording merges keys and never removes one.
alter table resource add column facts jsonb not null default '{}';

-- What statuses told until now. A phase of `ready` without a status is of something paused that could not be seen.
update resource set facts = jsonb_build_object('lineage', coalesce(
    status ->> 'lineage',
    case when jsonb_typeof(status) is distinct from 'object' and observed_generation = generation then spec ->> 'lineage' end,
    uid::text))
  where kind = 'Database' and deleted_at is null
    and (coalesce(status ->> 'server', '') <> '' or phase = 'ready');
update resource set facts = '{"hydrated": true}'
  where kind = 'DatabaseBranch' and deleted_at is null
    and (status -> 'hydrated' = 'true'::jsonb or status #>> '{failure,code}' = 'data_lost'
      or phase = 'ready' and jsonb_typeof(status) is distinct from 'object');
update resource set facts = '{"persisted": true}'
  where kind = 'Cache' and deleted_at is null and spec ->> 'persistence' = 'aof'
    and (coalesce(status ->> 'server', '') <> '' or phase = 'ready');
