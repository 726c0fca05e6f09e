-- Whoever is at a branch now holds a lease: the number, until it is due. A branch that never failed has no code then.
alter table branch_try add column lease bigint;
alter table branch_try alter column code drop not null;
alter table branch_try alter column message drop not null;
