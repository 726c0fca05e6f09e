-- concurrently
drop index concurrently if exists work_claim;
