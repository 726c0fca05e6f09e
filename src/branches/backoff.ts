/**
 * What the loops over branches have tried in vain. Each branch is tried again by and by, ever more rarely, so that one
 * that cannot succeed keeps no other from its turn.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import type { Fragment } from "effect/sql/Statement"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { Refused, RevisionConflict } from "#src/store/errors.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Found {
  readonly orgId: string
  readonly uid: string
  /** Whether it was tried in vain before. */
  readonly tried: boolean
}

const batch = 50
/** Longest time between two tries. */
const mostSeconds = 300

/** Branches that fulfil the condition and are due, the longest waiting first. */
export const dueBranches = Effect.fnUntraced(function* (condition: Fragment) {
  const { engine: sql } = yield* Db
  return yield* repeatable(sql<Found>`
    select r.org_id as "orgId", r.uid, t.uid is not null as tried
    from resource r left join branch_try t on t.org_id = r.org_id and t.uid = r.uid
    where r.kind = 'DatabaseBranch' and ${condition}
      and r.deletion_requested_at is null and r.deleted_at is null and (t.due_at is null or t.due_at <= now())
    order by coalesce(t.due_at, r.created_at) limit ${batch}::int`)
})

/** Whatever becomes of one try, the others have theirs: only a store that takes no record ends the round. */
export const attempt = Effect.fnUntraced(function* <E, R>(
  found: Found,
  /** What is tried; the reason of an event, where people want to know that it was in vain. */
  what: { readonly label: string; readonly event?: string },
  self: Effect.Effect<void, E, R>
): Effect.fn.Return<void, StoreUnavailable, R | Db> {
  const { engine: sql } = yield* Db
  yield* self.pipe(
    Effect.andThen(
      found.tried
        ? repeatable(
            sql`delete from branch_try where org_id = ${found.orgId}::uuid and uid = ${found.uid}::uuid`
          )
        : Effect.void
    ),
    Effect.catchCause((cause) =>
      Effect.gen(function* () {
        if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
        const { code, message } = toldBy(cause)
        yield* Effect.logWarning(`could not ${what.label} yet`, cause, { uid: found.uid })
        yield* inVain(found, what.event ?? null, code, storableText(message))
      })
    )
  )
})

/** Told to people once, and again when the reason is another. */
const inVain = Effect.fnUntraced(function* (
  { orgId, uid }: Found,
  event: string | null,
  code: string,
  message: string
) {
  const { engine: sql } = yield* Db
  yield* repeatable(sql`
    with before as (
      select code from branch_try where org_id = ${orgId}::uuid and uid = ${uid}::uuid
    ), noted as (
      insert into branch_try as t (org_id, uid, tries, due_at, code, message)
      select org_id, uid, 1, now() + interval '1 second', ${code}::text, ${message}::text
      from resource where org_id = ${orgId}::uuid and uid = ${uid}::uuid and deleted_at is null
      on conflict (org_id, uid) do update set tries = t.tries + 1, code = excluded.code, message = excluded.message,
        due_at = now() + least(${mostSeconds}::int, 2 ^ least(t.tries, 12)) * (0.5 + random() / 2) * interval '1 second'
      returning uid
    )
    insert into resource_event (org_id, uid, type, reason, message)
    select ${orgId}::uuid, uid, 'Warning', ${event}::text, ${message}::text from noted
    where ${event}::text is not null and not exists (select from before where code = ${code}::text)`)
})

/** For people, without what is inside: that is in the log. */
const toldBy = (cause: Cause.Cause<unknown>): { readonly code: string; readonly message: string } => {
  const error = Cause.squash(cause)
  if (error instanceof Refused) return { code: error.code, message: error.message }
  if (error instanceof RevisionConflict) return { code: "conflict", message: error.message }
  if (error instanceof StoreUnavailable)
    return { code: "store_unavailable", message: "The state store did not answer as it should" }
  return { code: "internal", message: "An internal fault, which the log tells of" }
}
