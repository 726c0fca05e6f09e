/**
 * What branches need besides being reconciled: those that are to be promoted when they are ready are, promotions whose
 * data was lost are called off, and records of branches that are over are removed after a while. Any number of processes may do it at once: a promotion builds on
 * the generations it has read, and a deletion that is asked for twice is one.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { persistent } from "#src/engine/persistent.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { Promotions } from "./Promotions.ts"

const batch = 50
/** Days that the record of an expired or promoted branch is kept. */
const keptDays = 7

interface Found {
  readonly orgId: string
  readonly uid: string
}

const actorOf = (operation: string, uid: string, outcome: number): Actor => ({
  principal: "system",
  credential: "none",
  operation,
  requestId: `branch-${uid}`,
  address: null,
  outcome
})

/** Index: resource_branch_waiting. */
export const promoteReady = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const promotions = yield* Promotions
  const found = yield* repeatable(sql<Found>`
    select org_id as "orgId", uid from resource
    where kind = 'DatabaseBranch' and spec -> 'promoteWhenReady' = 'true'::jsonb and phase = 'ready'
      and deletion_requested_at is null and deleted_at is null
    order by created_at limit ${batch}::int`)
  for (const { orgId, uid } of found) {
    const branch = yield* resources.get(orgId, uid)
    if (Option.isNone(branch)) continue
    yield* Effect.catch(
      promotions.promote(branch.value, actorOf("databaseBranches.promote", uid, 202)),
      (error) => Effect.logWarning("a branch could not be promoted yet", error, { uid })
    )
  }
})

/** Index: resource_branch_lost. */
export const callOffLost = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const promotions = yield* Promotions
  const found = yield* repeatable(sql<Found>`
    select org_id as "orgId", uid from resource
    where kind = 'DatabaseBranch' and spec ? 'promotedTo' and status #>> '{failure,code}' = 'data_lost'
      and deletion_requested_at is null and deleted_at is null
    order by updated_at limit ${batch}::int`)
  for (const { orgId, uid } of found) {
    const branch = yield* resources.get(orgId, uid)
    if (Option.isNone(branch)) continue
    yield* Effect.catch(
      promotions.callOff(branch.value, actorOf("databaseBranches.promote", uid, 409)),
      (error) => Effect.logWarning("a promotion could not be called off yet", error, { uid })
    )
  }
})

/** Index: resource_branch_over. */
export const collect = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const found = yield* repeatable(sql<Found>`
    select org_id as "orgId", uid from resource
    where kind = 'DatabaseBranch' and status ->> 'state' in ('expired', 'promoted')
      and updated_at < now() - make_interval(days => ${keptDays}::int)
      and deletion_requested_at is null and deleted_at is null
    order by updated_at limit ${batch}::int`)
  for (const { orgId, uid } of found) {
    yield* Effect.catch(
      resources.write(orgId, [{ action: "delete", uid }], actorOf("databaseBranches.delete", uid, 200)),
      (error) => Effect.logDebug("the record of a branch could not be removed yet", error, { uid })
    )
  }
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* Effect.andThen(promoteReady, callOffLost).pipe(
      Effect.repeat(Schedule.spaced("1 second")),
      (loop) => persistent("promote branches that are ready, and call off what was lost", loop),
      Effect.forkScoped
    )
    yield* collect.pipe(
      Effect.repeat(Schedule.spaced("5 minutes").pipe(Schedule.jittered)),
      (loop) => persistent("remove the records of branches that are over", loop),
      Effect.forkScoped
    )
  })
).pipe(Layer.provide(Promotions.layer))
