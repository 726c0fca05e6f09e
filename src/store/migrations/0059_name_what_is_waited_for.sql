-- The resource that is waited for by name, while waiting_on stands for it: that one need not exist yet, and nothing else
-- tells what it is called. Null where another one's uid is waited for.
alter table work add column waiting_for jsonb;
