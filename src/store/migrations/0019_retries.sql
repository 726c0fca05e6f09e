-- What became of the last try of a request with an Idempotency-Key that has no kept answer. Until a request is
-- answered, its row holds the sealed reservation: the id and the seed that all of its tries have in common.
alter table idempotency
  -- Null: a try is running, or ended with the process that ran it. 'refused': it changed nothing, the key is free.
  -- 'failed': it may have taken effect.
  add column outcome text check (outcome in ('refused', 'failed')),
  -- An earlier try may have taken effect.
  add column doubtful boolean not null default false;
