/**
 * The table of references: which resources the specifications of others name. Whatever writes a specification writes its
 * references with it, in the same statement.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { findKind, kinds } from "#schemas/index.ts"
import type { Kind } from "#schemas/kind.ts"
import { namedIn } from "#schemas/reference.ts"
import { inOrg, type Sql } from "./Db.ts"
import { afterLock, lockWork } from "./work-rows.ts"

/** One reference of a specification that is written. It counts where the resource is of the kind `of_kind`. */
export interface ReferenceRow {
  readonly uid: string
  readonly of_kind: string
  readonly path: string
  readonly kind: string
  readonly by_uid: boolean
  readonly target: string
  readonly scope: Kind["scope"]
  readonly environment: string | null
  readonly required: boolean
  readonly acyclic: boolean
}

const referring: ReadonlyArray<Kind> = kinds.filter((kind: Kind) => kind.references.length > 0)

/** What the specification would name as one of the kind, or of any kind where that is not known. */
export const referenceRows = (uid: string, spec: unknown, kind?: string): ReadonlyArray<ReferenceRow> =>
  referring
    .filter(({ name }) => kind === undefined || name === kind)
    .flatMap(({ name, references }) =>
      namedIn(references, spec).map(
        ({ reference, path, target, environment }): ReferenceRow => ({
          uid,
          of_kind: name,
          path: path.map((part) => `/${part}`).join(""),
          kind: reference.kind,
          by_uid: reference.by === "uid",
          target,
          scope: findKind(reference.kind)?.scope ?? "environment",
          environment: environment ?? null,
          required: reference.required,
          acyclic: reference.acyclic === true
        })
      )
    )

/** The references of the CTE `done`, which has uid, kind, project_id and environment of resources. */
export const namedBy = (sql: Sql, rows: ReadonlyArray<ReferenceRow>): Fragment => sql`
  select d.uid, d.kind as of, n.path, n.kind, n.by_uid, n.target, n.required, n.acyclic,
    case when not n.by_uid and n.scope <> 'organization' then d.project_id end as project_id,
    case when not n.by_uid and n.scope = 'environment' then coalesce(n.environment, d.environment) end as environment
  from jsonb_to_recordset(${sql.json(rows)}::jsonb) as n(
    uid uuid, of_kind text, path text, kind text, by_uid boolean, target text, scope text, environment text,
    required boolean, acyclic boolean)
  join done d on d.uid = n.uid and d.kind = n.of_kind`

/** CTEs that replace the references of the CTE `done`, which has uid, kind, project_id and environment of resources. */
export const recordReferences = (
  sql: Sql,
  orgId: string,
  rows: ReadonlyArray<ReferenceRow>,
  txid: Fragment = sql`pg_current_xact_id()`
): Fragment => sql`
  named as materialized (${namedBy(sql, rows)}),
  unnamed as (
    delete from resource_reference f using done d
    where f.org_id = ${orgId}::uuid and f.uid = d.uid and ${inOrg(sql, orgId)}
      and not exists (select from named n where n.uid = f.uid and n.path = f.path)
  ),
  referenced as (
    insert into resource_reference as f
      (org_id, uid, path, kind, by_uid, target, project_id, environment, required, acyclic, txid)
    select ${orgId}::uuid, uid, path, kind, by_uid, target, project_id, environment, required, acyclic, ${txid}
    from named where ${inOrg(sql, orgId)}
    on conflict (org_id, uid, path) do update set kind = excluded.kind, by_uid = excluded.by_uid,
      target = excluded.target, project_id = excluded.project_id, environment = excluded.environment,
      required = excluded.required, acyclic = excluded.acyclic, txid = excluded.txid
    where (f.kind, f.by_uid, f.target, f.project_id, f.environment, f.required, f.acyclic) is distinct from
      (excluded.kind, excluded.by_uid, excluded.target, excluded.project_id, excluded.environment, excluded.required,
        excluded.acyclic)
  )`

/** Resources whose references one statement records. */
const batch = 500

/**
 * Records the references of what was written without them: before there was the table, or by a process of the former
 * release. To be done before anything is decided by references. Index: resource_references_unrecorded.
 */
export const recordUnrecorded = Effect.fnUntraced(function* (sql: Sql, orgId: string) {
  const gate = inOrg(sql, orgId)
  for (;;) {
    const found = yield* sql<{
      readonly uid: string
      readonly kind: string
      readonly spec: unknown
      readonly generation: number
    }>`
      select uid, kind, spec, generation from resource
      where org_id = ${orgId}::uuid and kind = any(${referring.map(({ name }) => name)}::text[])
        and deleted_at is null and references_generation is distinct from generation and ${gate}
      limit ${batch}::int`
    if (found.length === 0) return
    yield* sql`
      with input as materialized (
        select * from jsonb_to_recordset(${sql.json(found.map(({ uid, generation }) => ({ uid, generation })))}::jsonb)
          as i(uid uuid, generation int)
      ),
      ${lockWork(sql, orgId, "input", gate)},
      done as (
        update resource r set references_generation = i.generation from input i
        where r.org_id = ${orgId}::uuid and r.uid = i.uid and r.generation = i.generation and ${gate}
          and ${afterLock(sql)}
        returning r.uid, r.kind, r.project_id, r.environment
      ),
      ${recordReferences(
        sql,
        orgId,
        found.flatMap(({ uid, kind, spec }) => referenceRows(uid, spec, kind)),
        sql`null::xid8`
      )}
      select count(*) from done`
    if (found.length < batch) return
  }
})
