-- Names of projects from before there were rules for lines of text: an export holds them, and no manifest may.
-- They become what the rules allow, as `toDisplayName` has it: control characters and ends of lines are blanks, marks of
-- direction are left out, and so is what JavaScript takes for blank at both ends. Of nothing the slug is left.
update resource r set spec = jsonb_set(r.spec, '{name}', to_jsonb(c.name))
  from (
    select org_id, uid, coalesce(nullif(regexp_replace(
        regexp_replace(
          regexp_replace(spec ->> 'name', '[\u0001-\u001f\u007f-\u009f\u2028\u2029]', ' ', 'g'),
          '[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]', '', 'g'),
        '^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff]+|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff]+$',
        '', 'g'), ''), name) as name
      from resource where kind = 'Project' and deleted_at is null and jsonb_typeof(spec -> 'name') = 'string'
  ) c
  where r.org_id = c.org_id and r.uid = c.uid and c.name is distinct from r.spec ->> 'name';
