/**
 * What branches need besides being reconciled: those that are to be promoted when they are ready are, promotions whose
 * data was lost are called off, and records of branches that are over are removed after a while. Each is a job of a
 * leased loop. One that is done twice does no harm: a promotion builds on the generations it has read, and a deletion
 * that is asked for twice is one.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { announcedEvery } from "#src/store/announcements.ts"
import { Refused, RevisionConflict } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  branchId,
  type ClaimedBranch,
  leaseSeconds,
  makeMaintenanceRows,
  type Task,
  type Vain
} from "./maintenance-rows.ts"
import { Promotions } from "./Promotions.ts"
import { decodeBranch } from "./view.ts"

const atOnce = 4
/** That a branch has become ready is told as any change is: no more often than this is looked at what it was. */
const restMs = 1_000

/** What was tried, after "could not". */
const labels: Readonly<Record<Task, string>> = {
  promote: "promote a branch",
  callOff: "call off a promotion",
  collect: "remove the record of a branch"
}
/** Where people want to know that it was in vain. */
const events: Readonly<Record<Task, string | null>> = {
  promote: "PromotionWaits",
  callOff: "PromotionWaits",
  collect: null
}

/** What a try came to. */
export type MaintenanceResult = { readonly _tag: "Succeeded" } | ({ readonly _tag: "Failed" } & Vain)

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

/** Branches as jobs. */
export const maintenanceLoop = Effect.gen(function* () {
  const resources = yield* Resources
  const promotions = yield* Promotions
  const rows = yield* makeMaintenanceRows

  const promote = Effect.fnUntraced(function* ({ orgId, uid }: ClaimedBranch) {
    const branch = Option.getOrUndefined(yield* resources.get(orgId, uid))
    // Another process was faster.
    if (branch === undefined || !decodeBranch(branch).spec.promoteWhenReady) return
    const actor = actorOf("databaseBranches.promote", uid, 202)
    yield* promotions.promote(branch, actor).pipe(
      Effect.catchIf(
        (error): error is Refused => error._tag === "Refused" && forEver.has(error.code),
        ({ code, message }) =>
          promotions.giveUp(branch, { code, detail: message }, { ...actor, outcome: 409 })
      )
    )
  })
  const callOff = Effect.fnUntraced(function* ({ orgId, uid }: ClaimedBranch) {
    const branch = Option.getOrUndefined(yield* resources.get(orgId, uid))
    if (branch === undefined) return
    yield* promotions.callOff(branch, actorOf("databaseBranches.promote", uid, 409))
  })
  const collect = ({ orgId, uid }: ClaimedBranch) =>
    resources.write(orgId, [{ action: "delete", uid }], actorOf("databaseBranches.delete", uid, 200))
  const acts = { promote, callOff, collect }

  const loop: LeasedLoop<ClaimedBranch, MaintenanceResult> = {
    name: "branches",
    does: "promote branches that are ready, call off what was lost, and remove what is over",
    idOf: branchId,
    // Each is a few statements on the store, whoever it belongs to: who waits the longest is next.
    atOnce,
    leaseMs: leaseSeconds * 1000,
    wake: yield* announcedEvery("svc_change", restMs),
    claim: ({ most }) => rows.claim(most),
    run: (one) =>
      Effect.suspend(() => Effect.asVoid(acts[one.task](one))).pipe(
        Effect.as<MaintenanceResult>({ _tag: "Succeeded" }),
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.interrupt
            : Effect.as(Effect.logWarning(`could not ${labels[one.task]} yet`, cause, { uid: one.uid }), {
                _tag: "Failed",
                ...toldBy(cause),
                event: events[one.task]
              } as const)
        )
      ),
    settle: (one, result) => (result._tag === "Succeeded" ? rows.succeeded(one) : rows.failed(one, result)),
    renew: rows.renew,
    release: (held) => Effect.forEach(held, rows.release, { discard: true }),
    nextIn: rows.nextIn
  }
  return loop
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

export const layer = Layer.effectDiscard(Effect.flatMap(maintenanceLoop, leased)).pipe(
  Layer.provide(Promotions.layer)
)
