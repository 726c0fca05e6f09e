-- The commit of each open pull request that has or had a preview, by its number: what was closed since then stays closed.
alter table pull_request_look add column previewed jsonb not null default '{}';
