/**
 * Writing desired state: any number of creations, updates and deletions in one statement.
 *
 * The same statement stores the resources, their secrets, their queue entries, their history and the audit
 * record, and wakes the engine: there is no moment at which one exists without the others.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as SqlError from "effect/sql/SqlError"
import type { Json } from "#schemas/kind.ts"
import { inOrg, orUnavailable, type Sql, transaction, violatedUnique } from "./Db.ts"
import { NameTaken, NotFound, Refused, RevisionConflict } from "./errors.ts"
import type { KeyRing } from "./KeyRing.ts"
import type { Actor } from "./records.ts"
import { secretPlace } from "./Secrets.ts"

export type SecretValues = Readonly<Record<string, Redacted.Redacted>>

export interface CreateChange {
  readonly action: "create"
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Json
  readonly managedBy: "api" | "manifest"
  readonly secrets?: SecretValues
}

export interface UpdateChange {
  readonly action: "update"
  readonly uid: string
  readonly spec: Json
  /** Changes it only while it still has this revision. */
  readonly expectedRevision?: string
  /** Changes it only while it still has this generation. */
  readonly expectedGeneration?: number
  readonly managedBy?: "api" | "manifest"
  readonly secrets?: SecretValues
}

/** Asks for deletion of a resource and of everything in it. */
export interface DeleteChange {
  readonly action: "delete"
  readonly uid: string
  readonly expectedRevision?: string
  readonly expectedGeneration?: number
}

export type Change = CreateChange | UpdateChange | DeleteChange

/** What became of one change. A deletion answers for the resource itself, not for what it contains. */
export interface Written {
  readonly uid: string
  readonly generation: number
  readonly revision: string
  readonly createdAt: Date
  readonly updatedAt: Date
}

/** All of `changes` or none of them. */
export const writeChanges = Effect.fn("writeChanges")(function* (
  sql: Sql,
  ring: KeyRing["Service"],
  orgId: string,
  changes: ReadonlyArray<Change>,
  actor: Actor
) {
  if (changes.length === 0) return []
  const run = (some: ReadonlyArray<Change>) =>
    Effect.flatMap(statement(sql, ring, orgId, some, actor), (written) =>
      written.length === some.length ? Effect.succeed(written) : explain(sql, orgId, some, written)
    )
  const deletions = changes.filter((change) => change.action === "delete")
  const others = changes.filter((change) => change.action !== "delete")
  // What takes the place of something deleted finds its name free only in a later statement.
  const once =
    deletions.length === 0 || others.length === 0
      ? run(changes)
      : Effect.zipWith(run(deletions), run(others), (first, second) => [...first, ...second])
  // One change is one statement and needs no transaction: it either matched or changed nothing.
  return yield* (changes.length === 1 ? once : transaction(sql, once)).pipe(
    // A deadlock took everything back.
    Effect.retry({
      times: 2,
      while: (error) => SqlError.isSqlError(error) && error.reason._tag === "DeadlockError"
    }),
    Effect.catchIf(
      (error): error is SqlError.SqlError =>
        SqlError.isSqlError(error) && violatedUnique(error) !== undefined,
      (error) => Effect.fail(nameTaken(changes, violatedUnique(error)))
    ),
    orUnavailable
  )
})

const nameTaken = (changes: ReadonlyArray<Change>, constraint: string | undefined) => {
  const names = changes
    .filter((change) => change.action === "create")
    .map((change) => `${change.kind} "${change.name}"`)
  return new NameTaken({
    message:
      constraint === "resource_one_database"
        ? "The environment already has a database"
        : `${names.length === 1 ? `${names[0]} exists already` : "One of the names exists already"}; choose another name`
  })
}

const statement = (
  sql: Sql,
  ring: KeyRing["Service"],
  orgId: string,
  changes: ReadonlyArray<Change>,
  actor: Actor
) => {
  const input = changes.map((change, ord) => ({
    ord,
    action: change.action,
    uid: change.uid,
    kind: change.action === "create" ? change.kind : null,
    project_id: change.action === "create" ? change.projectId : null,
    environment: change.action === "create" ? change.environment : null,
    name: change.action === "create" ? change.name : null,
    parent_uid: change.action === "create" ? change.parentUid : null,
    spec: change.action === "delete" ? null : change.spec,
    managed_by: change.action === "delete" ? null : (change.managedBy ?? null),
    expected: change.action === "create" ? null : (change.expectedRevision ?? null),
    expected_generation: change.action === "create" ? null : (change.expectedGeneration ?? null)
  }))
  const secrets = changes.flatMap((change) =>
    change.action === "delete"
      ? []
      : Object.entries(change.secrets ?? {}).map(([field, value]) => {
          const sealed = ring.seal(secretPlace({ orgId, uid: change.uid, field }), value)
          return {
            uid: change.uid,
            field,
            key_id: sealed.keyId,
            sealed: Buffer.from(sealed.bytes).toString("base64")
          }
        })
  )
  const gate = inOrg(sql, orgId)
  return sql<Written>`
    with recursive input as materialized (
      select * from jsonb_to_recordset(${sql.json(input)}::jsonb) as c(
        ord int, action text, uid uuid, kind text, project_id uuid, environment text, name text, parent_uid uuid,
        spec jsonb, managed_by text, expected bigint,
        expected_generation int)
    ),
    -- A parent must live, and not be on its way out, until this commits.
    parents as materialized (
      select p.uid from resource p
      where p.org_id = ${orgId}::uuid and p.deletion_requested_at is null and p.deleted_at is null
        and p.uid in (select parent_uid from input where action = 'create') and ${gate}
      for share
    ),
    created as (
      insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
      select ${orgId}::uuid, i.uid, i.kind, i.project_id, i.environment, i.name, i.parent_uid, i.spec, i.managed_by
      from input i
      where i.action = 'create' and ${gate}
        and (i.parent_uid is null or i.parent_uid in (select uid from parents)
          or i.parent_uid in (select uid from input where action = 'create'))
      order by i.ord
      returning uid, kind, parent_uid, generation, revision, created_at, updated_at
    ),
    updated as (
      update resource r set
        spec = i.spec,
        generation = r.generation + (r.spec is distinct from i.spec)::int,
        managed_by = coalesce(i.managed_by, r.managed_by),
        revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
      from input i
      where i.action = 'update' and r.org_id = ${orgId}::uuid and r.uid = i.uid and ${gate}
        and r.deleted_at is null and r.deletion_requested_at is null
        and (i.expected is null or r.revision = i.expected)
        and (i.expected_generation is null or r.generation = i.expected_generation)
      returning r.uid, r.kind, r.generation, r.revision, r.created_at, r.updated_at
    ),
    doomed(uid, root, protected, depth) as (
      select r.uid, r.uid, r.protected, 0 from resource r join input i on i.uid = r.uid
      where i.action = 'delete' and r.org_id = ${orgId}::uuid and r.deleted_at is null and ${gate}
        and (i.expected is null or r.revision = i.expected)
        and (i.expected_generation is null or r.generation = i.expected_generation)
      union
      select r.uid, d.root, r.protected, d.depth + 1 from doomed d
      join resource r on r.org_id = ${orgId}::uuid and r.parent_uid = d.uid and r.deleted_at is null
      where ${gate}
    ),
    deleted as (
      update resource r set
        deletion_requested_at = coalesce(r.deletion_requested_at, now()),
        phase = 'deleting', phase_since = case when r.phase = 'deleting' then r.phase_since else now() end,
        revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now()
      where r.org_id = ${orgId}::uuid and ${gate}
        and r.uid in (select d.uid from doomed d where not exists (
          select from doomed other where other.root = d.root and other.protected))
      returning r.uid, r.kind, r.generation, r.revision, r.created_at, r.updated_at
    ),
    queued as (
      insert into work (org_id, uid, kind) select ${orgId}::uuid, uid, kind from created where ${gate}
    ),
    requeued as (
      update work w set
        again = true,
        due_at = case when w.lease_until > now() then w.due_at else now() end,
        rank = case when w.lease_until > now() then w.due_at else now() end,
        waiting_on = null
      where w.org_id = ${orgId}::uuid and ${gate}
        and w.uid in (select uid from updated union all select uid from deleted)
    ),
    sealed as (
      insert into secret (org_id, uid, field, key_id, sealed)
      select ${orgId}::uuid, s.uid, s.field, s.key_id, decode(s.sealed, 'base64')
      from jsonb_to_recordset(${sql.json(secrets)}::jsonb) as s(uid uuid, field text, key_id text, sealed text)
      where s.uid in (select uid from created union all select uid from updated) and ${gate}
      on conflict (org_id, uid, field)
      do update set key_id = excluded.key_id, sealed = excluded.sealed, updated_at = now()
    ),
    history as (
      insert into resource_event (org_id, uid, type, reason, message, actor, generation)
      select ${orgId}::uuid, e.uid, 'Normal', e.reason, e.message || ' by ' || ${actor.operation}::text, ${actor.principal}::text, e.generation
      from (
        select uid, generation, 'Created' as reason, 'Created' as message from created
        union all select uid, generation, 'SpecChanged', 'Specification changed' from updated
        union all select uid, generation, 'DeletionRequested', 'Deletion requested' from deleted
      ) e where ${gate}
    ),
    audited as (
      insert into audit_log (org_id, principal, credential, operation, resource, request_id, address, outcome)
      select ${orgId}::uuid, ${actor.principal}::text, ${actor.credential}::text, ${actor.operation}::text,
        i.uid::text, ${actor.requestId}::text, ${actor.address}::text, ${actor.outcome}::int
      from input i
      where i.uid in (select uid from created union all select uid from updated union all select uid from deleted)
        and ${gate}
    ),
    woken as (
      select pg_notify('svc_work', ''), pg_notify('svc_change', ${orgId}::text)
    )
    select done.uid, done.generation, done.revision::text as revision,
      done.created_at as "createdAt", done.updated_at as "updatedAt"
    from input i
    join (
      select uid, generation, revision, created_at, updated_at from created
      union all select uid, generation, revision, created_at, updated_at from updated
      union all select uid, generation, revision, created_at, updated_at from deleted
    ) done on done.uid = i.uid
    cross join woken
    order by i.ord`
}

/** Finds out why some change did not match. In a transaction this failure takes the others back with it. */
const explain = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  changes: ReadonlyArray<Change>,
  written: ReadonlyArray<Written>
) {
  const done = new Set(written.map((row) => row.uid))
  const missed = changes.find((change) => !done.has(change.uid))!
  const target = missed.action === "create" ? missed.parentUid : missed.uid
  const [row] = yield* sql<{
    readonly kind: string
    readonly name: string
    readonly deleting: boolean
    readonly revision: string
    readonly generation: number
    readonly guarded: string | null
  }>`
    with recursive inside(uid, protected, label) as (
      select uid, protected, kind || ' "' || name || '"' from resource
      where org_id = ${orgId}::uuid and uid = ${target}::uuid and deleted_at is null and ${inOrg(sql, orgId)}
      union
      select r.uid, r.protected, r.kind || ' "' || r.name || '"' from inside i
      join resource r on r.org_id = ${orgId}::uuid and r.parent_uid = i.uid and r.deleted_at is null
      where ${inOrg(sql, orgId)}
    )
    select r.kind, r.name, r.deletion_requested_at is not null as deleting, r.revision::text as revision, r.generation,
      (select label from inside where protected limit 1) as guarded
    from resource r
    where r.org_id = ${orgId}::uuid and r.uid = ${target}::uuid and r.deleted_at is null and ${inOrg(sql, orgId)}`
  if (row === undefined) {
    return yield* new NotFound({
      message:
        missed.action === "create"
          ? "What it should be created in does not exist"
          : "The resource does not exist"
    })
  }
  const label = `${row.kind} "${row.name}"`
  if (missed.action === "delete" && row.guarded !== null) {
    return yield* new Refused({
      code: "protected",
      message: `${row.guarded} is protected against deletion; remove the protection first (svc protect --off)`
    })
  }
  if (
    missed.action !== "create" &&
    missed.expectedRevision !== undefined &&
    missed.expectedRevision !== row.revision
  ) {
    return yield* new RevisionConflict({
      message: `${label} changed since it was read; read it again and repeat the change`
    })
  }
  if (
    missed.action !== "create" &&
    missed.expectedGeneration !== undefined &&
    missed.expectedGeneration !== row.generation
  ) {
    return yield* new RevisionConflict({ message: `${label} changed since it was planned; plan again` })
  }
  if (row.deleting) {
    return yield* new Refused({
      code: "being_deleted",
      message: `${label} is being deleted; wait until it is gone`
    })
  }
  return yield* new RevisionConflict({ message: `${label} changed while the request ran; repeat it` })
})
