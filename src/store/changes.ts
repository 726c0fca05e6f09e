/** Writing desired state: any number of creations, updates and deletions, all of them or none. */
import * as Effect from "effect/Effect"
import * as SqlError from "effect/sql/SqlError"
import type { Statement } from "effect/sql/Statement"
import type { Change, CreateChange, Written } from "./change.ts"
import { creation, deletion, update, type Writing } from "./change-statements.ts"
import { inOrg, orUnavailable, refusedByRule, type Sql, transaction, violatedUnique } from "./Db.ts"
import { NameTaken, NotFound, Refused, RevisionConflict } from "./errors.ts"
import type { KeyRing } from "./KeyRing.ts"
import type { Actor } from "./records.ts"
import { inUse, markedNow, refuseCircles, refuseMissing } from "./reference-checks.ts"
import { recordUnrecorded, referenceRows } from "./reference-rows.ts"

/** All of `changes` or none of them. What was created before under the same uid is left as it is. */
export const writeChanges = Effect.fn("writeChanges")(function* (
  sql: Sql,
  ring: KeyRing["Service"],
  orgId: string,
  changes: ReadonlyArray<Change>,
  actor: Actor
) {
  if (changes.length === 0) return []
  const writing = { sql, ring, orgId, actor }
  const run = <C extends Change>(
    some: ReadonlyArray<C>,
    make: (writing: Writing, some: ReadonlyArray<C>) => Statement<Written>
  ): Effect.Effect<ReadonlyArray<Written>, SqlError.SqlError | NotFound | Refused | RevisionConflict> =>
    some.length === 0
      ? Effect.succeed([])
      : Effect.flatMap(make(writing, some), (written) =>
          written.length === some.length ? Effect.succeed(written) : explain(sql, orgId, some, written)
        )
  const once = Effect.gen(function* () {
    // What takes the place of something deleted finds its name free only in a later statement.
    const deleted = yield* run(
      changes.filter((change) => change.action === "delete"),
      deletion
    )
    const updated = yield* run(
      changes.filter((change) => change.action === "update"),
      update
    )
    const creations = changes.filter((change) => change.action === "create")
    const created = creations.length === 0 ? [] : yield* creation(writing, creations)
    const before =
      created.length === creations.length ? [] : yield* createdBefore(sql, orgId, creations, created)
    const written = new Map([...deleted, ...updated, ...created, ...before].map((row) => [row.uid, row]))
    yield* checkReferences(sql, orgId, changes)
    return changes.flatMap((change) => written.get(change.uid) ?? [])
  })
  // A single statement needs no transaction, unless it has to be looked what became of references.
  const needsTransaction = changes.length > 1 || concernsReferences(changes)
  const before = concernsReferences(changes) ? recordUnrecorded(sql, orgId) : Effect.void
  return yield* Effect.andThen(before, needsTransaction ? transaction(sql, once) : once).pipe(
    // A deadlock took everything back.
    Effect.retry({
      times: 2,
      while: (error) => SqlError.isSqlError(error) && error.reason._tag === "DeadlockError"
    }),
    Effect.catchIf(
      (error): error is SqlError.SqlError => SqlError.isSqlError(error),
      (error): Effect.Effect<never, NameTaken | Refused | SqlError.SqlError> => {
        const refusal = refusedByRule(error)
        if (refusal !== undefined) {
          const deleted = changes.flatMap(({ action, uid }) => (action === "delete" ? [uid] : []))
          const used = inUse(sql, orgId, sql`r.uid = any(${deleted}::uuid[])`)
          return Effect.flatMap(used, (refused) => Effect.fail(refused ?? new Refused(refusal)))
        }
        const constraint = violatedUnique(error)
        return Effect.fail(constraint === undefined ? error : nameTaken(changes, constraint))
      }
    ),
    orUnavailable
  )
})

const names = (change: Change): boolean =>
  change.action === "create"
    ? referenceRows(change.uid, change.spec, change.kind).length > 0
    : change.action === "update" && referenceRows(change.uid, change.spec).length > 0

const concernsReferences = (changes: ReadonlyArray<Change>): boolean =>
  changes.some((change) => change.action === "delete" || names(change))

const checkReferences = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  changes: ReadonlyArray<Change>
) {
  if (changes.some(({ action }) => action === "delete")) {
    const used = yield* inUse(sql, orgId, markedNow(sql))
    if (used !== undefined) return yield* used
  }
  const naming = changes.filter(names).map(({ uid }) => uid)
  if (naming.length === 0) return
  yield* refuseMissing(sql, orgId, naming)
  yield* refuseCircles(sql, orgId, naming)
})

const nameTaken = (changes: ReadonlyArray<Change>, constraint: string) => {
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

/** What an earlier try of the same request created, or two tries at once. */
const createdBefore = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  changes: ReadonlyArray<CreateChange>,
  created: ReadonlyArray<Written>
) {
  const done = new Set(created.map((row) => row.uid))
  const missed = changes.flatMap(({ uid }) => (done.has(uid) ? [] : [uid]))
  const rows = yield* sql<Written & { readonly deleted: boolean }>`
    select uid, generation, revision::text as revision, created_at as "createdAt", updated_at as "updatedAt",
      deleted_at is not null as deleted
    from resource where org_id = ${orgId}::uuid and uid = any(${missed}::uuid[]) and ${inOrg(sql, orgId)}`
  if (rows.length < missed.length) return yield* explain(sql, orgId, changes, [...created, ...rows])
  if (rows.some(({ deleted }) => deleted)) {
    return yield* new Refused({
      code: "deleted_since",
      message:
        "An earlier try of this request created it, and it was deleted since; use a new idempotency key"
    })
  }
  return rows
})

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
