-- concurrently
create index concurrently if not exists work_kept on work (pool, svc_slot(uid)) where kept;
