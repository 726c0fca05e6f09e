-- concurrently
-- The release after this one drops work_claim: processes of the former release still read the queue in its order.
create index concurrently if not exists work_claim_pool on work (kind, pool, rank);
