-- How many certificates an organization has ordered of the ACME authority, whose limits all organizations share.

create table edge_order_limit (
  org_id uuid not null references organization on delete cascade,
  -- Renewals count apart: new names do not keep an organization from renewing what is served.
  renewal boolean not null,
  -- When what was ordered would have been ordered if it had come evenly from now on (generic cell rate algorithm,
  -- ITU-T I.371, where this is the theoretical arrival time). In the past: nothing counts any more.
  ordered_until timestamptz not null,
  primary key (org_id, renewal)
);
select svc_tenant_table('edge_order_limit', false);
revoke all on edge_order_limit from svc_api;
