-- Both times of a resource have the same grain: of one that was just made they are equal.
alter table resource alter column updated_at type timestamptz(3);
