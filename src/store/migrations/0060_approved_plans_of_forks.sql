-- The commit of a fork that somebody let a git source plan.
alter table git_source_review add column approved_commit text;
