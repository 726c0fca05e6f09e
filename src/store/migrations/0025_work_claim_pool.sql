-- concurrently
create index concurrently if not exists work_claim_pool on work (kind, pool, rank);
