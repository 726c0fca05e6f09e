/**
 * One reconcile of one resource: observe; when something differs take one step and observe again; tell what was
 * seen. This is where the three functions of a kind become readiness, drift reports, pausing, adoption, deletion,
 * backoff and deadlines.
 */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import { type ExternalCall, ExternalCallLog } from "./external-call.ts"
import { newFacts } from "./facts.ts"
import { failureOutcome } from "./failure-outcome.ts"
import type { EngineOptions } from "./options.ts"
import { outcomeOf, type RunSteps, waitingForChildren } from "./outcome.ts"
import { driftDelay, pollDelay } from "./outcome-types.ts"
import type { Observation, ReconcileError, Registration, Resource, Retryable } from "./Reconciler.ts"
import { quiet, type RunResult, report } from "./report.ts"
import type { Claimed } from "./WorkStore.ts"

/**
 * Never fails: whatever goes wrong becomes a result that says so. When its fiber is interrupted there is none; the
 * lease is then given back by whoever interrupted.
 */
export const reconcile = (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions
): Effect.Effect<RunResult> => {
  const { observe } = registration.reconciler
  if (!canBeQuiet(claimed)) return full(registration, claimed, options)
  // The common case, and the one that must be cheap: it is as it should be and as it was.
  return Effect.matchCauseEffect(bounded(observe(toResource(claimed)), options), {
    onSuccess: (observation) =>
      isAsItWas(claimed, observation)
        ? quietly(registration, claimed, observation)
        : full(registration, claimed, options, Exit.succeed(observation)),
    onFailure: (cause) => full(registration, claimed, options, Exit.failCause(cause))
  })
}

/**
 * A look without a lease: nothing is written, neither out there nor in the store. Nothing comes of it where there is
 * anything to do or to tell; that is for a reconcile. Whoever calls it sees that it ends: a timer for each would cost as
 * much as the look.
 */
export const look = (registration: Registration, claimed: Claimed): Effect.Effect<RunResult | undefined> => {
  if (!canBeQuiet(claimed)) return Effect.undefined
  return Effect.matchCauseEffect(registration.reconciler.observe(toResource(claimed)), {
    onSuccess: (observation) =>
      isAsItWas(claimed, observation) ? quietly(registration, claimed, observation) : Effect.undefined,
    onFailure: () => Effect.undefined
  })
}

const canBeQuiet = (claimed: Claimed): boolean =>
  claimed.settled && claimed.paused === null && claimed.retryToken === null

const isAsItWas = (claimed: Claimed, observation: Observation<unknown>): boolean =>
  observation._tag === "Present" &&
  observation.ready &&
  observation.differences.length === 0 &&
  (observation.maintenance ?? []).length === 0 &&
  observation.note === undefined &&
  newFacts(claimed.facts, observation) === undefined &&
  isDeepStrictEqual(observation.status, claimed.status)

const quietly = (
  registration: Registration,
  claimed: Claimed,
  observation: Observation<unknown>
): Effect.Effect<RunResult> =>
  Effect.map(Random.next, (random) => ({
    outcome: "ready",
    driftFound: false,
    recorded: { ...quiet(claimed), dueIn: pollDelay(observation, driftDelay(registration, random)) }
  }))

/** What hangs must not keep its resource, and its room, for ever: not even the first look. */
const bounded = <A>(self: Effect.Effect<A, ReconcileError>, options: EngineOptions) =>
  Effect.timeoutOrElse(self, {
    duration: options.runMs,
    orElse: () => Effect.die(new Error(`took longer than ${options.runMs / 1000} s`))
  })

const toResource = (claimed: Claimed): Resource => ({
  orgId: claimed.orgId,
  uid: claimed.uid,
  kind: claimed.kind,
  projectId: claimed.projectId,
  environment: claimed.environment,
  name: claimed.name,
  parentUid: claimed.parentUid,
  spec: claimed.spec,
  generation: claimed.generation,
  status: claimed.status,
  facts: claimed.facts,
  deleting: claimed.deleting,
  fence: claimed.token
})

type Looked = Exit.Exit<Observation<unknown>, ReconcileError>

const full = Effect.fn("reconcile")(
  function* (registration: Registration, claimed: Claimed, options: EngineOptions, looked?: Looked) {
    const log: Array<ExternalCall> = []
    const hasChildren = claimed.deleting && claimed.children !== null && claimed.children.count > 0
    const act = claimed.paused === null && !hasChildren
    const taken = { steps: 0 }
    const exit = hasChildren
      ? undefined
      : yield* bounded(takeSteps(registration, claimed, act, options, taken, looked), options).pipe(
          Effect.provideService(ExternalCallLog, log),
          Effect.exit
        )
    const random = yield* Random.next
    // A look that no step followed cost what a look for drift costs: what was there once is looked at as often.
    const lookWithin =
      taken.steps === 0 && claimed.status !== null && !claimed.deleting
        ? driftDelay(registration, random)
        : Number.POSITIVE_INFINITY
    const outcome =
      exit === undefined
        ? waitingForChildren(claimed, options)
        : Exit.isSuccess(exit)
          ? outcomeOf(registration, claimed, options, exit.value, random)
          : yield* failureOutcome(claimed, options, exit.cause, lookWithin)
    return yield* report(registration, claimed, options, outcome, log, lookWithin)
  },
  Effect.annotateLogs({ component: "engine" })
)

/** Users can rely on it as it is: what is still to be done is maintenance. */
const isMaintenance = (observation: Observation<unknown>): boolean =>
  observation._tag === "Present" && observation.ready && observation.differences.length === 0

const needsStep = (resource: Resource, observation: Observation<unknown>): boolean =>
  resource.deleting
    ? observation._tag === "Present"
    : observation._tag === "Absent" ||
      observation.differences.length > 0 ||
      (observation.maintenance ?? []).length > 0

const takeSteps = Effect.fnUntraced(function* (
  registration: Registration,
  claimed: Claimed,
  act: boolean,
  options: EngineOptions,
  taken: { steps: number },
  looked: Looked | undefined
) {
  const { reconciler } = registration
  const resource = toResource(claimed)
  // Facts are stored before a step is taken that may rely on them. Removal relies on none.
  const mayStep = (seen: Observation<unknown>) =>
    act && needsStep(resource, seen) && (resource.deleting || newFacts(claimed.facts, seen) === undefined)
  const first = yield* looked ?? reconciler.observe(resource)
  const found = first._tag === "Present" ? first.differences : []
  let observation: Observation<unknown> = first
  let failure: Retryable | undefined
  while (taken.steps < options.maxSteps && mayStep(observation)) {
    const before = observation
    taken.steps++
    const step = resource.deleting
      ? reconciler.remove(resource, before)
      : reconciler.converge(resource, before)
    // A failure of what takes nothing from users is told without calling the whole in doubt.
    failure = yield* Effect.catch(Effect.as(step, undefined), (error) =>
      error._tag === "Retryable" && !resource.deleting && isMaintenance(before)
        ? Effect.succeed(error)
        : Effect.fail(error)
    )
    observation = yield* reconciler.observe(resource)
    // A step that changed nothing that can be seen: look again later instead of insisting now.
    if (isDeepStrictEqual(before, observation)) break
  }
  const run: RunSteps = {
    observation,
    found,
    foundAbsent: first._tag === "Absent",
    steps: taken.steps,
    failure
  }
  return run
})
