/**
 * Carries out what runs decided on, through the same router as any request, with the rights of an admin's API key and
 * nobody's credential. What the project allows is asked again right before each call. A call that was not answered, because
 * its process was killed or the store was away, is sent again under the same idempotency key, and takes effect once.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { MaintenanceSpec } from "#schemas/maintenance.ts"
import type { Identity } from "#src/access/Access.ts"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import { type Answer, makeDispatch } from "#src/api/dispatch.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { Db } from "#src/store/Db.ts"
import { type ActionResult, Actions, type ClaimedAction, type Standing } from "./Actions.ts"
import { hourMs } from "./look.ts"
import { operationOf, requestOf } from "./operations.ts"
import { channel, MaintenanceOptions } from "./options.ts"

const decode = Schema.decodeUnknownOption(MaintenanceSpec)
const ended = (
  status: "succeeded" | "failed" | "refused",
  reason: string | null,
  answered: number | null = null
): ActionResult => ({ _tag: "Ended", status, answered, reason })

/** Seconds between tries. */
const shortestPause = 2
const longestPause = 600
/** A call that takes longer is sent again when the lease of its action has ended. */
const patience = "2 minutes"
/**
 * What was decided on before that is not called any more: what was seen then tells little of now. It is well below the
 * 24 hours for which the API remembers idempotency keys, after which a call that was lost would take effect twice.
 */
const outdatedMs = 6 * hourMs

/** Why the project does not allow the action now; undefined: it does. */
export const refusalOf = (
  { remedy: { operationId } }: Pick<ClaimedAction, "remedy">,
  standing: Standing | undefined
): string | undefined => {
  if (standing === undefined || standing.deleting) return "The maintenance was deleted"
  if (standing.paused) return "The maintenance is paused"
  if (standing.subjectPaused) return "What it is about is paused"
  if (!standing.open) return "The finding was resolved or dismissed"
  const spec = Option.getOrUndefined(decode(standing.spec))
  if (spec === undefined) return "The settings of the maintenance cannot be read"
  const { enabled, maximumRisk, allowedOperationIds } = spec.autoRemediation
  if (!spec.enabled || !enabled) return "Automatic remediation was switched off"
  if (!allowedOperationIds.some((id) => id === operationId)) return `${operationId} is not allowed any more`
  const risk = operationOf(operationId)?.operation.risk
  const isAllowed = risk === "read" || (risk === "write" && maximumRisk === "write")
  return isAllowed ? undefined : `The risk of ${operationId} is higher than what is allowed`
}

/** Actions as jobs; `call` sends a request as the maintenance. */
export const actionsLoop = Effect.fnUntraced(function* (
  call: (action: ClaimedAction, standing: Standing) => Effect.Effect<Answer>
) {
  const actions = yield* Actions
  const options = yield* MaintenanceOptions

  const run = Effect.fnUntraced(function* (action: ClaimedAction): Effect.fn.Return<ActionResult, unknown> {
    // A try without an answer ends as an error, of which nothing is stored: only the number of tries bounds them.
    if (action.attempt > options.mostAttempts)
      return ended("failed", `It was begun ${options.mostAttempts} times and had no answer`)
    if ((yield* Clock.currentTimeMillis) - action.createdAt.getTime() > outdatedMs) {
      const reason = `It was decided on more than ${outdatedMs / hourMs} hours ago`
      return action.attempt === 1
        ? ended("refused", reason)
        : ended("failed", `${reason}, and an earlier try may have taken effect`)
    }
    const standing = Option.getOrUndefined(yield* actions.standing(action))
    const refusal = refusalOf(action, standing)
    if (standing === undefined || refusal !== undefined) return ended("refused", refusal ?? null)
    const { status, text } = yield* externalCall(
      "maintenance.call",
      "write"
    )(Effect.timeout(call(action, standing), patience))
    if (status < 300) return ended("succeeded", null, status)
    const reason = detailOf(text) ?? `It answered ${status}`
    // Too many at once, still under way from an earlier try, or a fault of ours: it may pass.
    const mayPass = status === 429 || status >= 500 || isInFlight(text)
    if (!mayPass || action.attempt >= options.mostAttempts) return ended("failed", reason, status)
    const pause = Math.min(longestPause, shortestPause * 4 ** (action.attempt - 1))
    return { _tag: "Again", seconds: pause * (0.8 + 0.4 * (yield* Random.next)), answered: status, reason }
  })

  const loop: LeasedLoop<ClaimedAction, ActionResult> = {
    name: "maintenance_actions",
    does: "carry out what maintenance decided on",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce: options.atOnce,
    leaseMs: options.leaseMs,
    lookMs: options.lookMs,
    claim: actions.claim,
    run,
    settle: actions.settle,
    renew: actions.renew,
    release: actions.release,
    nextIn: actions.nextIn
  }
  return loop
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const router = yield* HttpRouter.HttpRouter
    const { notifications } = yield* Db
    const loop = yield* actionsLoop(
      Effect.fnUntraced(function* (action, { organization }) {
        const request = requestOf(action.remedy, action.orgId, action.id)
        if (request === undefined) return { status: 404, headers: {}, text: "" }
        const identity: Identity = {
          credentialId: action.maintenanceUid,
          userId: null,
          // Nobody's credential, whose use nobody notes.
          lastUsedAt: new Date(yield* Clock.currentTimeMillis),
          provedAt: null,
          grant: undefined,
          organization: { ...organization, role: "admin" }
        }
        const dispatch = makeDispatch(
          router,
          { credential: { kind: "maintenance", digest: Buffer.alloc(0) }, identity },
          "api"
        )
        const info = { id: action.id, address: null }
        return yield* dispatch(request).pipe(Effect.provideService(CurrentRequest, info))
      })
    )
    const { look } = yield* leased(loop)
    yield* Effect.forkScoped(Stream.runForEach(notifications(channel), () => look))
  })
)

const decodeProblem = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Struct({ code: Schema.String, detail: Schema.String }))
)
const detailOf = (text: string | undefined) => Option.getOrUndefined(decodeProblem(text))?.detail
const isInFlight = (text: string | undefined) =>
  Option.getOrUndefined(decodeProblem(text))?.code === "idempotency_key_in_flight"
