/**
 * What has to be true of references once a transaction that changed some of them commits. Asked in statements of their
 * own, after the changes: each sees what had committed when it began, and holds what is named until the commit. Whoever
 * deletes that waits, and then finds it named; of two that meet the second always sees the first.
 */
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { findKind } from "#schemas/index.ts"
import { kindInWords } from "#schemas/kind.ts"
import { circleMessage, missingCode, missingMessage } from "#schemas/missing-reference.ts"
import { circularIn } from "#schemas/reference-graph.ts"
import { inOrg, type Sql } from "./Db.ts"
import { Refused } from "./errors.ts"
import { addressOf, type ResourceRecord } from "./records.ts"
import { namedBy, referenceRows } from "./reference-rows.ts"

/** Users and faults that are told. */
const mostTold = 100

/** The living resource that reference `f` names, or null. Indexes: the primary key, resource_identity. */
const resolved = (sql: Sql, orgId: string, condition: Fragment = sql``): Fragment => {
  const target = (where: Fragment) => sql`(
    select r.uid from resource r
    where r.org_id = ${orgId}::uuid and r.kind = f.kind and ${where}
      and r.deletion_requested_at is null and r.deleted_at is null ${condition} and ${inOrg(sql, orgId)})`
  const named = sql`r.name = f.target`
  return sql`case
    when f.by_uid then ${target(sql`r.uid = case
      when f.target ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then f.target::uuid end`)}
    when f.environment is not null then
      ${target(sql`r.project_id = f.project_id and r.environment = f.environment and ${named}`)}
    when f.project_id is not null then
      ${target(sql`r.project_id = f.project_id and r.environment is null and ${named}`)}
    else ${target(sql`r.project_id is null and r.environment is null and ${named}`)}
  end`
}

/** What this transaction began to name is there and stays until it commits. `uids`: the resources it has written. */
export const refuseMissing = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  uids: ReadonlyArray<string>
) {
  const missing = yield* sql<Missing>`
    with begun as materialized (
      select f.uid, f.path, f.kind, f.target, f.environment, ${resolved(sql, orgId)} as found
      from resource_reference f
      where f.org_id = ${orgId}::uuid and f.uid = any(${uids}::uuid[]) and f.required
        and f.txid = pg_current_xact_id() and ${inOrg(sql, orgId)}
    ),
    -- In the order of their ids: two that name the same ones do not wait for each other.
    kept as materialized (
      select r.uid from resource r
      where r.org_id = ${orgId}::uuid and r.uid in (select found from begun)
        and r.deletion_requested_at is null and r.deleted_at is null and ${inOrg(sql, orgId)}
      order by r.uid for share
    )
    select r.kind as of, b.path, b.kind, b.target, b.environment
    from begun b join resource r on r.org_id = ${orgId}::uuid and r.uid = b.uid
    where ${inOrg(sql, orgId)} and (b.found is null or not exists (select from kept k where k.uid = b.found))
    order by b.uid, b.path limit ${mostTold}::int`
  const refused = missingRefused(missing)
  if (refused !== undefined) return yield* refused
})

/**
 * What a specification of the resource would begin to name and is not there, as a write would refuse it. Nothing is
 * held: for requests that come to no write.
 */
export const missingIn = (sql: Sql, orgId: string, resource: Referring, spec: unknown) => {
  const { uid, kind, projectId, environment } = resource
  const rows = referenceRows(uid, spec, kind).filter(({ required }) => required)
  if (rows.length === 0) return Effect.succeed(undefined)
  const missing = sql<Missing>`
    with done as (
      select ${uid}::uuid as uid, ${kind}::text as kind, ${projectId}::uuid as project_id,
        ${environment}::text as environment
    ),
    f as materialized (${namedBy(sql, rows)})
    select f.of, f.path, f.kind, f.target, f.environment from f
    where ${inOrg(sql, orgId)} and ${resolved(sql, orgId)} is null and not exists (
      select from resource_reference o
      where o.org_id = ${orgId}::uuid and o.uid = f.uid and o.path = f.path
        and (o.kind, o.by_uid, o.target, o.project_id, o.environment)
          is not distinct from (f.kind, f.by_uid, f.target, f.project_id, f.environment))
    order by f.path limit ${mostTold}::int`
  return Effect.map(missing, missingRefused)
}

/** A resource that names others, which need not be stored yet. */
export type Referring = Pick<ResourceRecord, "uid" | "kind" | "projectId" | "environment">

/** A reference that leads nowhere. */
interface Missing {
  readonly of: string
  readonly path: string
  readonly kind: string
  readonly target: string
  readonly environment: string | null
}

const missingRefused = (missing: ReadonlyArray<Missing>): Refused | undefined => {
  const faults = missing.flatMap(({ of, path, target, environment, ...named }) => {
    const reference = findKind(of)?.references.find(({ kind }) => kind === named.kind)
    return reference === undefined
      ? []
      : [{ reference, pointer: path, message: missingMessage({ reference, target }, environment) }]
  })
  const [first] = faults
  return first === undefined
    ? undefined
    : new Refused({
        code: missingCode(first.reference),
        message: `${first.pointer} ${first.message}`,
        faults: faults.map(({ pointer, message }) => ({ pointer, message }))
      })
}

/** What this transaction began to name leads back to none of `uids` where it must not. */
export const refuseCircles = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  uids: ReadonlyArray<string>
) {
  const gate = inOrg(sql, orgId)
  const edges = yield* sql<{
    readonly uid: string
    readonly path: string
    readonly kind: string
    readonly target: string | null
  }>`
    with recursive reached(uid) as (
      select f.uid from resource_reference f
      where f.org_id = ${orgId}::uuid and f.uid = any(${uids}::uuid[]) and f.acyclic
        and f.txid = pg_current_xact_id() and ${gate}
      union
      select ${resolved(sql, orgId)} from reached c
      join resource_reference f on f.org_id = ${orgId}::uuid and f.uid = c.uid and f.acyclic
      where ${gate}
    )
    select f.uid, f.path, f.kind, ${resolved(sql, orgId)} as target
    from reached c join resource_reference f on f.org_id = ${orgId}::uuid and f.uid = c.uid and f.acyclic
    where ${gate}`
  const graph = new Map(
    [...Map.groupBy(edges, ({ uid }) => uid)].map(([uid, some]) => [
      uid,
      some.flatMap(({ target }) => target ?? [])
    ])
  )
  const circular = new Set(circularIn(graph))
  const written = new Set(uids)
  const faults = edges
    .filter(({ uid, target }) => written.has(uid) && circular.has(uid) && circular.has(target ?? ""))
    .slice(0, mostTold)
    .map(({ path, kind }) => ({ pointer: path, message: circleMessage({ kind }) }))
  const [first] = faults
  if (first === undefined) return
  return yield* new Refused({
    code: "reference_circle",
    message: `${first.pointer} ${first.message}`,
    faults
  })
})

/** What a transaction has marked for deletion until now. Index: resource_feed. */
export const markedNow = (sql: Sql): Fragment =>
  sql`r.txid = pg_current_xact_id() and r.deletion_requested_at is not null`

/**
 * Nothing that stays names what is deleted: undefined if that is so. What has taken a name over is what is named by it.
 * `deleted` chooses the rows of `resource r`. Indexes: resource_reference_target and primary keys, one row after another.
 */
export const inUse = Effect.fnUntraced(function* (sql: Sql, orgId: string, deleted: Fragment) {
  const gate = inOrg(sql, orgId)
  const users = yield* sql<{
    readonly used: string
    readonly usedName: string
    readonly path: string
    readonly kind: string
    readonly name: string
    readonly environment: string | null
    readonly project: string | null
  }>`
    with deleted as materialized (
      select r.uid, r.kind, r.project_id, r.environment, r.name from resource r
      where r.org_id = ${orgId}::uuid and ${deleted} and ${gate}
    )
    select t.kind as used, t.name as "usedName", f.path, u.kind, u.name, u.environment, p.name as project
    from deleted t
    cross join lateral (
      select * from resource_reference n
      where n.org_id = ${orgId}::uuid and n.kind = t.kind and n.target = any(array[t.uid::text, t.name]) and n.required
        and case when n.by_uid then n.target = t.uid::text
          else n.target = t.name and n.project_id is not distinct from t.project_id
            and n.environment is not distinct from t.environment end
      offset 0
    ) f
    cross join lateral (
      select r.kind, r.name, r.environment, r.project_id from resource r
      where r.org_id = ${orgId}::uuid and r.uid = f.uid
        and r.deletion_requested_at is null and r.deleted_at is null
      offset 0
    ) u
    left join lateral (
      select r.name from resource r where r.org_id = ${orgId}::uuid and r.uid = u.project_id offset 0
    ) p on true
    where ${gate} and ${resolved(sql, orgId, sql`and r.uid <> t.uid`)} is null
    order by t.kind, t.name, p.name, u.environment, u.kind, u.name, f.path limit ${mostTold}::int`
  const [first] = users
  if (first === undefined) return undefined
  const addresses = [...new Set(users.map(addressOf))]
  const fields = [...new Set(users.map(({ path }) => path))].join(", ")
  return new Refused({
    code: "in_use",
    message: `The ${kindInWords(first.used)} "${first.usedName}" is named by ${addresses.join(", ")} (${fields}); change that first`,
    addresses
  })
})
