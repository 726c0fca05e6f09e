/**
 * The statement that makes changes of one kind: creations, updates or deletions. Each stores the resources with
 * their secrets, references, queue entries, history and audit records, and wakes the engine: there is no moment at which one
 * exists without the others.
 *
 * Every statement has a CTE `done` of what it changed; what follows from a change is the same for all of them.
 */
import type { Fragment } from "effect/sql/Statement"
import { findKind } from "#schemas/index.ts"
import { poolOf } from "#schemas/placement.ts"
import { auditOf } from "./audit-cte.ts"
import type { CreateChange, DeleteChange, UpdateChange, Written } from "./change.ts"
import type { Sql } from "./Db.ts"
import { inOrg } from "./Db.ts"
import type { KeyRing } from "./KeyRing.ts"
import type { Actor } from "./records.ts"
import { recordReferences, referenceRows } from "./reference-rows.ts"
import { secretPlace } from "./Secrets.ts"
import { afterLock, dueNow, lockWork } from "./work-rows.ts"

export interface Writing {
  readonly sql: Sql
  readonly ring: KeyRing["Service"]
  readonly orgId: string
  readonly actor: Actor
}

export const creation = (writing: Writing, changes: ReadonlyArray<CreateChange>) => {
  const { sql, orgId } = writing
  const references = changes.flatMap(({ uid, spec, kind }) => referenceRows(uid, spec, kind))
  const gate = inOrg(sql, orgId)
  const input = changes.map((change, ord) => ({
    ord,
    uid: change.uid,
    kind: change.kind,
    project_id: change.projectId,
    environment: change.environment,
    name: change.name,
    parent_uid: change.parentUid,
    spec: change.spec,
    managed_by: change.managedBy,
    pool: poolOf(findKind(change.kind), change.spec)
  }))
  return sql<Written>`
    with input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb) as c(
        ord int, uid uuid, kind text, project_id uuid, environment text, name text, parent_uid uuid, spec jsonb,
        managed_by text, pool text)
    ),
    -- A parent must live, and not be on its way out, until this commits.
    parents as materialized (
      select p.uid from resource p
      where p.org_id = ${orgId}::uuid and p.uid in (select parent_uid from input) and ${gate}
        and p.deletion_requested_at is null and p.deleted_at is null
        ${single(sql, "p.uid", changes.length === 1 ? changes[0]?.parentUid : undefined)}
      for share
    ),
    done as (
      insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by,
        generation, references_generation)
      select ${orgId}::uuid, i.uid, i.kind, i.project_id, i.environment, i.name, i.parent_uid, i.spec, i.managed_by, 1, 1
      from input i
      where ${gate} and (i.parent_uid is null or i.parent_uid in (select uid from parents)
        or i.parent_uid in (select uid from input))
      order by i.ord
      -- An earlier try of the same request may have made it.
      on conflict (org_id, uid) do nothing
      returning uid, kind, project_id, environment, generation, revision, created_at, updated_at
    ),
    ${references.length === 0 ? sql`` : sql`${recordReferences(sql, orgId, references)},`}
    queued as (
      insert into work (org_id, uid, kind, pool)
      select ${orgId}::uuid, done.uid, done.kind, i.pool from done join input i on i.uid = done.uid where ${gate}
    ),
    ${consequences(writing, "Created", "Created", changes)}`
}

export const update = (writing: Writing, changes: ReadonlyArray<UpdateChange>) => {
  const { sql, orgId } = writing
  const gate = inOrg(sql, orgId)
  const input = changes.map((change) => ({
    uid: change.uid,
    name: change.name ?? null,
    spec: change.spec,
    managed_by: change.managedBy ?? null,
    ...expectations(change)
  }))
  return sql<Written>`
    with input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb) as c(
        uid uuid, name text, spec jsonb, managed_by text, expected bigint, expected_generation int)
    ),
    ${hold(writing, "input", onlyUid(changes))},
    done as (
      update resource r set
        name = coalesce(i.name, r.name),
        spec = i.spec,
        generation = r.generation + (r.spec is distinct from i.spec)::int,
        references_generation = r.generation + (r.spec is distinct from i.spec)::int,
        managed_by = coalesce(i.managed_by, r.managed_by),
        revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
      from input i
      where r.org_id = ${orgId}::uuid and r.uid = i.uid ${single(sql, "r.uid", onlyUid(changes))} and ${gate}
        and r.deleted_at is null and r.deletion_requested_at is null and ${asExpected(sql)} and ${afterLock(sql)}
      returning r.uid, r.kind, r.project_id, r.environment, r.generation, r.revision, r.created_at, r.updated_at
    ),
    ${recordReferences(
      sql,
      orgId,
      changes.flatMap(({ uid, spec }) => referenceRows(uid, spec))
    )},
    ${requeue(writing, "done", onlyUid(changes))},
    ${consequences(writing, "SpecChanged", "Specification changed", changes)}`
}

/** Marks a resource and everything in it, or nothing where something in it is protected. */
export const deletion = (writing: Writing, changes: ReadonlyArray<DeleteChange>) => {
  const { sql, orgId } = writing
  const gate = inOrg(sql, orgId)
  const input = changes.map((change) => ({ uid: change.uid, ...expectations(change) }))
  return sql<Written>`
    with recursive input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb) as c(
        uid uuid, expected bigint, expected_generation int)
    ),
    doomed(uid, root, protected, depth) as (
      select r.uid, r.uid, r.protected, 0 from resource r join input i on i.uid = r.uid
      where r.org_id = ${orgId}::uuid ${single(sql, "r.uid", onlyUid(changes))} and ${gate}
        and r.deleted_at is null and ${asExpected(sql)}
      union
      select r.uid, d.root, r.protected, d.depth + 1 from doomed d
      join resource r on r.org_id = ${orgId}::uuid and r.parent_uid = d.uid and r.deleted_at is null
      where ${gate}
    ),
    ${hold(writing, "doomed", undefined)},
    done as (
      update resource r set
        deletion_requested_at = coalesce(r.deletion_requested_at, now()),
        phase = 'deleting', phase_since = case when r.phase = 'deleting' then r.phase_since else now() end,
        revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
      where r.org_id = ${orgId}::uuid and ${gate} and ${afterLock(sql)}
        and r.uid in (select d.uid from doomed d where not exists (
          select from doomed other where other.root = d.root and other.protected))
      returning r.uid, r.generation, r.revision, r.created_at, r.updated_at
    ),
    ${requeue(writing, "done", undefined)},
    ${consequences(writing, "DeletionRequested", "Deletion requested", [])}`
}

/** A single change names its row: without statistics the planner may read a whole organization for it instead. */
const single = (sql: Sql, column: string, uid: string | null | undefined): Fragment =>
  uid === null || uid === undefined ? sql`` : sql`and ${sql.literal(column)} = ${uid}::uuid`

const onlyUid = (changes: ReadonlyArray<{ readonly uid: string }>): string | undefined =>
  changes.length === 1 ? changes[0]?.uid : undefined

const expectations = (change: UpdateChange | DeleteChange) => ({
  expected: change.expectedRevision ?? null,
  expected_generation: change.expectedGeneration ?? null
})
const asExpected = (sql: Sql): Fragment => sql`
  (i.expected is null or r.revision = i.expected)
  and (i.expected_generation is null or r.generation = i.expected_generation)`

/** The queue entries of what is chosen. With one row alone the planner is told which. */
const hold = ({ sql, orgId }: Writing, chosen: string, uid: string | undefined): Fragment =>
  lockWork(sql, orgId, chosen, sql`${inOrg(sql, orgId)} ${single(sql, "w.uid", uid)}`)

const requeue = ({ sql, orgId }: Writing, changed: string, uid: string | undefined): Fragment => sql`
  requeued as (
    update work w set waiting_on = null, ${dueNow(sql)}
    where w.org_id = ${orgId}::uuid ${single(sql, "w.uid", uid)} and ${inOrg(sql, orgId)}
      and w.uid in (select uid from ${sql.literal(changed)})
  )`

/** Secrets, history, audit, the announcement, and the answer in any order. */
const consequences = (
  { sql, ring, orgId, actor }: Writing,
  reason: string,
  message: string,
  changes: ReadonlyArray<CreateChange | UpdateChange>
): Fragment => {
  const gate = inOrg(sql, orgId)
  const secrets = changes.flatMap((change) =>
    Object.entries(change.secrets ?? {}).map(([field, value]) => {
      const sealed = ring.seal(secretPlace({ orgId, uid: change.uid, field }), value)
      return {
        uid: change.uid,
        field,
        key_id: sealed.keyId,
        sealed: Buffer.from(sealed.bytes).toString("base64")
      }
    })
  )
  const sealed = sql`
    sealed as (
      insert into secret (org_id, uid, field, key_id, sealed)
      select ${orgId}::uuid, s.uid, s.field, s.key_id, decode(s.sealed, 'base64')
      from jsonb_to_recordset(${sql.json(secrets)}::jsonb) as s(uid uuid, field text, key_id text, sealed text)
      where s.uid in (select uid from done) and ${gate}
      on conflict (org_id, uid, field)
      do update set key_id = excluded.key_id, sealed = excluded.sealed, updated_at = now()
    ),`
  return sql`
    ${secrets.length === 0 ? sql`` : sealed}
    history as (
      insert into resource_event (org_id, uid, type, reason, message, actor, generation)
      select ${orgId}::uuid, uid, 'Normal', ${reason}::text, ${message}::text || ' by ' || ${actor.operation}::text,
        ${actor.principal}::text, generation
      from done where ${gate}
    ),
    asked as (select uid as id from done where uid in (select uid from input)),
    audited as (${auditOf(sql, orgId, actor, "asked")}),
    woken as (
      select pg_notify('svc_work', ''), pg_notify('svc_change', ${orgId}::text)
    )
    select done.uid, generation, revision::text as revision, created_at as "createdAt", updated_at as "updatedAt"
    from done cross join woken
    where done.uid in (select uid from input)`
}
