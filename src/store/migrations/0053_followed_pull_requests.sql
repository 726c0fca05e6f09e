-- The commit of each open pull request that has or had a preview, by its number: what was closed since then stays closed.
alter table pull_request_look add column previewed jsonb not null default '{}';

-- Since when no connection opens the repository, which is empty where the project has none.
alter table pull_request_look add column unconnected_since timestamptz;
