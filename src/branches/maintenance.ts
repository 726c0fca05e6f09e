/**
 * What branches need besides being reconciled: those that are to be promoted when they are ready are, promotions whose
 * data was lost are called off, and records of branches that are over are removed after a while. Any number of
 * processes may do it at once: a promotion builds on the generations it has read, and a deletion that is asked for
 * twice is one.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { patienceMs } from "#src/engine/answered.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import type { Refused } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { attempt, dueBranches } from "./backoff.ts"
import { Promotions } from "./Promotions.ts"

/** Days that the record of an expired or promoted branch is kept. */
const keptDays = 7

const actorOf = (operation: string, uid: string, outcome: number): Actor => ({
  principal: "system",
  credential: "none",
  operation,
  requestId: `branch-${uid}`,
  address: null,
  outcome
})

/** Refusals that no other try changes. */
const forEver = new Set(["no_database", "already_promoted", "being_deleted"])

/** Index: resource_branch_waiting. */
export const promoteReady = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const promotions = yield* Promotions
  const due = yield* dueBranches(sql`r.spec -> 'promoteWhenReady' = 'true'::jsonb and r.phase = 'ready'
    and r.status ->> 'state' = 'ready'`)
  for (const found of due) {
    const { orgId, uid } = found
    const actor = actorOf("databaseBranches.promote", uid, 202)
    const promote = Effect.gen(function* () {
      const branch = Option.getOrUndefined(yield* resources.get(orgId, uid))
      if (branch === undefined) return
      yield* promotions.promote(branch, actor).pipe(
        Effect.catchIf(
          (error): error is Refused => error._tag === "Refused" && forEver.has(error.code),
          ({ code, message }) =>
            promotions.giveUp(branch, { code, detail: message }, { ...actor, outcome: 409 })
        )
      )
    })
    yield* attempt(found, { label: "promote a branch", event: "PromotionWaits" }, promote)
  }
})

/** Index: resource_branch_lost. */
export const callOffLost = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const promotions = yield* Promotions
  const due = yield* dueBranches(sql`r.spec ? 'promotedTo' and r.status #>> '{failure,code}' = 'data_lost'`)
  for (const found of due) {
    const { orgId, uid } = found
    const callOff = Effect.gen(function* () {
      const branch = Option.getOrUndefined(yield* resources.get(orgId, uid))
      if (branch === undefined) return
      yield* promotions.callOff(branch, actorOf("databaseBranches.promote", uid, 409))
    })
    yield* attempt(found, { label: "call off a promotion", event: "PromotionWaits" }, callOff)
  }
})

/** Index: resource_branch_over. */
export const collect = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const due = yield* dueBranches(sql`r.status ->> 'state' in ('expired', 'promoted')
    and r.updated_at < now() - make_interval(days => ${keptDays}::int)`)
  for (const found of due) {
    const { orgId, uid } = found
    const actor = actorOf("databaseBranches.delete", uid, 200)
    const remove = resources.write(orgId, [{ action: "delete", uid }], actor)
    yield* attempt(found, { label: "remove the record of a branch" }, remove)
  }
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* periodic(
      {
        does: "promote branches that are ready, and call off what was lost",
        every: "1 second",
        withinMs: patienceMs
      },
      Effect.andThen(promoteReady, callOffLost)
    )
    yield* periodic({ does: "remove the records of branches that are over", every: "5 minutes" }, collect)
  })
).pipe(Layer.provide(Promotions.layer))
