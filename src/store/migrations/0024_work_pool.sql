-- Which processes may take a piece of work: any, or those of one region. What is there already is anybody's until the first
-- process that serves its kind takes it.
alter table work add column pool text not null default 'any';
