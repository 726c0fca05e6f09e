-- A backup destination stays as long as a database names it, whatever writes either of the two at the same moment.
-- Whoever names one holds it shared; whoever deletes one holds it alone, and looks with its row in hand. Both look
-- after their statement, in a snapshot of their own, so the second of two always sees the first.
-- The state SVREF is a refusal: its constraint is a code, its message is for people.

create function database_names_destinations() returns trigger language plpgsql as $$
declare
  missing text;
begin
  -- In the order of their ids: two that name the same ones do not wait for each other.
  perform from resource r
    where r.org_id = new.org_id and r.kind = 'BackupDestination' and r.deletion_requested_at is null
      and r.deleted_at is null and new.spec->'backup'->'destinationIds' ? r.uid::text
    order by r.uid for share;
  select t.id into missing
    from jsonb_array_elements_text(new.spec->'backup'->'destinationIds') as t(id)
    where not exists (
      select from resource r
      where r.org_id = new.org_id and r.kind = 'BackupDestination' and r.uid::text = t.id
        and r.deletion_requested_at is null and r.deleted_at is null)
    limit 1;
  if missing is not null then
    raise exception 'The organization has no backup destination "%"', missing
      using errcode = 'SVREF', constraint = 'unknown_destination';
  end if;
  return null;
end
$$;
create trigger database_created after insert on resource for each row
  when (new.kind = 'Database' and jsonb_array_length(coalesce(new.spec->'backup'->'destinationIds', '[]')) > 0)
  execute function database_names_destinations();
-- What it named already is there: it could not be deleted.
create trigger database_updated after update of spec on resource for each row
  when (new.kind = 'Database'
    and new.spec->'backup'->'destinationIds' is distinct from old.spec->'backup'->'destinationIds'
    and jsonb_array_length(coalesce(new.spec->'backup'->'destinationIds', '[]')) > 0)
  execute function database_names_destinations();

create function destination_is_named() returns trigger language plpgsql as $$
declare
  users text;
begin
  select string_agg(p.name || '/' || r.environment || '/Database/' || r.name, ', ' order by p.name, r.environment)
    into users
    from resource r join resource p on p.org_id = new.org_id and p.uid = r.project_id
    where r.org_id = new.org_id and r.kind = 'Database' and r.deletion_requested_at is null
      and r.deleted_at is null and r.spec->'backup'->'destinationIds' ? new.uid::text
      -- With the organization everything goes, in any order.
      and not exists (select from organization o where o.id = new.org_id and o.deletion_requested_at is not null);
  if users is not null then
    raise exception 'Backups are kept there: take it out of the backup policy of % first', users
      using errcode = 'SVREF', constraint = 'in_use';
  end if;
  return null;
end
$$;
create trigger destination_deleted after update of deletion_requested_at on resource for each row
  when (new.kind = 'BackupDestination' and old.deletion_requested_at is null
    and new.deletion_requested_at is not null)
  execute function destination_is_named();
