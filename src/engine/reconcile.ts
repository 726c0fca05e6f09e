/**
 * One reconcile of one resource: observe; when something differs take one step and observe again; tell what was
 * seen. This is where the three functions of a kind become readiness, drift reports, pausing, adoption, deletion,
 * backoff and deadlines.
 */
import { isDeepStrictEqual } from "node:util"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import type { Phase } from "#schemas/condition.ts"
import {
  type ConditionInput,
  eventType,
  findCondition,
  isGood,
  nextConditions,
  transitions
} from "./conditions.ts"
import type { EngineOptions } from "./options.ts"
import { type OutsideCall, OutsideLog } from "./outside.ts"
import type { Difference, Observation, ReconcileError, Registration, Resource } from "./Reconciler.ts"
import type { Claimed, EngineEvent, Priority, Recorded, StatusChange } from "./WorkStore.ts"

/** How a run ended, for metrics. */
export type Outcome =
  | "ready"
  | "progressing"
  | "waiting"
  | "retryable"
  | "terminal"
  | "paused"
  | "deleting"
  | "deleted"

export interface RunResult {
  readonly outcome: Outcome
  readonly driftFound: boolean
  readonly recorded: Recorded
}

/** Longer than anybody waits: "not again by itself". */
const never = 10 * 365 * 86_400_000

/**
 * Never fails: whatever goes wrong becomes a result that says so. Interruption alone passes through; the lease is
 * then given back by whoever interrupted.
 */
export const reconcile = (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions
): Effect.Effect<RunResult> => {
  const { observe } = registration.reconciler
  if (!claimed.settled || claimed.paused !== null || claimed.retryToken !== null)
    return full(registration, claimed, options)
  // The common case, and the one that must be cheap: it is as it should be and as it was.
  const resource = toResource(claimed)
  return Effect.matchCauseEffect(bounded(observe(resource), options), {
    onSuccess: (observation) =>
      observation._tag === "Present" &&
      observation.ready &&
      observation.differences.length === 0 &&
      isDeepStrictEqual(observation.status, claimed.status)
        ? Effect.map(Random.next, (random) => ({
            outcome: "ready" as const,
            driftFound: false,
            recorded: { ...quiet(claimed), dueIn: driftDelay(registration, random) }
          }))
        : full(registration, claimed, options, Exit.succeed(observation)),
    onFailure: (cause) => full(registration, claimed, options, Exit.failCause(cause))
  })
}

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
  deleting: claimed.deleting,
  fence: claimed.token
})

const quiet = (claimed: Claimed): Recorded => ({
  lease: { orgId: claimed.orgId, uid: claimed.uid, token: claimed.token },
  dueIn: 0,
  priority: 2,
  attempt: 0,
  waitingOn: null,
  seen: claimed.seen,
  lastError: null,
  handledRetry: null,
  change: undefined
})

/** Jitter of a fifth keeps what was made together from being looked at together for ever. */
const driftDelay = (registration: Registration, random: number): number =>
  Duration.toMillis(Duration.fromInputUnsafe(registration.driftInterval)) * (0.9 + random * 0.2)

/** What the steps of one run came to. */
interface Walk {
  readonly observation: Observation<unknown>
  /** Differences that the first look found. */
  readonly found: ReadonlyArray<Difference>
  readonly foundAbsent: boolean
  readonly steps: number
}

type Looked = Exit.Exit<Observation<unknown>, ReconcileError>

const full = Effect.fn("reconcile")(
  function* (registration: Registration, claimed: Claimed, options: EngineOptions, looked?: Looked) {
    const log: Array<OutsideCall> = []
    const resource = toResource(claimed)
    const hasChildren = claimed.deleting && claimed.children !== null && claimed.children.count > 0
    const act = claimed.paused === null && !hasChildren
    const exit = hasChildren
      ? undefined
      : yield* bounded(walk(registration, resource, act, options, looked), options).pipe(
          Effect.provideService(OutsideLog, log),
          Effect.exit
        )
    if (exit !== undefined && Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
      return yield* Effect.interrupt
    const verdict =
      exit === undefined
        ? waitingForChildren(claimed, options)
        : Exit.isSuccess(exit)
          ? judge(registration, claimed, options, exit.value, yield* Random.next)
          : yield* judgeFailure(claimed, options, exit.cause)
    return yield* report(registration, claimed, options, verdict, log)
  },
  Effect.annotateLogs({ component: "engine" })
)

const needsStep = (resource: Resource, observation: Observation<unknown>): boolean =>
  resource.deleting
    ? observation._tag === "Present"
    : observation._tag === "Absent" || observation.differences.length > 0

const walk = Effect.fnUntraced(function* (
  registration: Registration,
  resource: Resource,
  act: boolean,
  options: EngineOptions,
  looked: Looked | undefined
) {
  const { reconciler } = registration
  const first = yield* looked ?? reconciler.observe(resource)
  const found = first._tag === "Present" ? first.differences : []
  let observation: Observation<unknown> = first
  let steps = 0
  while (act && steps < options.maxSteps && needsStep(resource, observation)) {
    const before = observation
    yield* resource.deleting
      ? reconciler.remove(resource, observation)
      : reconciler.converge(resource, observation)
    steps++
    observation = yield* reconciler.observe(resource)
    // A step that changed nothing that can be seen: look again later instead of insisting now.
    if (isDeepStrictEqual(before, observation)) break
  }
  const walked: Walk = { observation, found, foundAbsent: first._tag === "Absent", steps }
  return walked
})

/** What a run means for the resource: the parts of the report that differ by outcome. */
interface Verdict {
  readonly outcome: Outcome
  readonly phase: Phase
  readonly ready: Omit<ConditionInput, "type">
  readonly synced: Omit<ConditionInput, "type">
  readonly status: StatusChange["status"] | undefined
  readonly differences: ReadonlyArray<Difference>
  /** Undefined: the run does not tell whether there is drift. */
  readonly drift: "none" | "open" | "repaired" | undefined
  readonly driftEvents: ReadonlyArray<EngineEvent>
  readonly dueIn: number
  readonly priority: Priority
  /** Whether the try counts towards backoff and stalling. */
  readonly fruitless: boolean
  readonly waitingOn: string | null
  readonly lastError: string | null
  readonly acted: boolean
}

const listed = (differences: ReadonlyArray<Difference>, absent: boolean): string =>
  absent
    ? "it is not there"
    : differences.map((difference) => `${difference.field}: ${difference.message}`).join("; ")

/** The phase of something on its way: it never was ready, or it was and is being changed. */
const underway = (claimed: Claimed): Phase =>
  claimed.deleting
    ? "deleting"
    : claimed.phase === "ready" || claimed.phase === "updating"
      ? "updating"
      : claimed.status !== null && claimed.phase !== "provisioning" && claimed.phase !== "pending"
        ? "updating"
        : "provisioning"

const judge = (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions,
  walked: Walk,
  random: number
): Verdict => {
  const { observation, found, foundAbsent, steps } = walked
  const settledBefore = claimed.phase === "ready" && claimed.observedGeneration === claimed.generation
  const drifted = settledBefore && !claimed.deleting && (foundAbsent || found.length > 0)
  const driftText = listed(found, foundAbsent)
  const open = observation._tag === "Absent" || observation.differences.length > 0
  const base = {
    status: observation._tag === "Present" ? (observation.status as StatusChange["status"]) : null,
    differences:
      observation._tag === "Present"
        ? observation.differences
        : claimed.deleting
          ? []
          : [{ field: "", message: "Not there" }],
    drift: drifted
      ? open
        ? ("open" as const)
        : ("repaired" as const)
      : open
        ? undefined
        : ("none" as const),
    driftEvents: drifted
      ? [
          {
            type: "Warning" as const,
            reason: "DriftFound",
            message: `What is there differs from what was asked for: ${driftText}`
          },
          ...(open || claimed.paused !== null
            ? []
            : [
                {
                  type: "Normal" as const,
                  reason: "DriftRepaired",
                  message: `Brought back to what was asked for: ${driftText}`
                }
              ])
        ]
      : [],
    waitingOn: null,
    lastError: null,
    acted: steps > 0
  }
  const poll = (fallback: number): number =>
    observation._tag === "Present" && observation.pollAfter !== undefined
      ? Duration.toMillis(Duration.fromInputUnsafe(observation.pollAfter))
      : fallback

  if (claimed.deleting && claimed.paused === null) {
    const gone = observation._tag === "Absent"
    const message = gone ? "It is gone" : "Being removed; looked at again shortly"
    return {
      ...base,
      outcome: gone ? "deleted" : "deleting",
      phase: gone ? "deleted" : "deleting",
      ready: { status: "false", reason: "Deleting", message },
      synced: { status: gone ? "true" : "false", reason: "Deleting", message },
      dueIn: poll(backoff(claimed.attempt, options, random)),
      priority: 1,
      fruitless: !gone && steps > 0
    }
  }
  const present = observation._tag === "Present" && observation.ready
  if (claimed.paused !== null) {
    const interval = driftDelay(registration, random)
    return {
      ...base,
      outcome: "paused",
      phase: claimed.phase,
      ready: present
        ? { status: "true", reason: "Converged", message: "Ready; reconciling is paused" }
        : {
            status: "false",
            reason: "PausedByUser",
            message: "Not ready, and not touched while reconciling is paused"
          },
      synced: open
        ? {
            status: "false",
            reason: "PausedByUser",
            message: `Left as it is while paused: ${listed(base.differences, observation._tag === "Absent")}`
          }
        : { status: "true", reason: "Converged", message: "What is there matches what was asked for" },
      dueIn: Math.min(interval, claimed.paused.endsIn ?? interval),
      priority: 2,
      fruitless: false
    }
  }
  if (present && !open) {
    return {
      ...base,
      outcome: "ready",
      phase: "ready",
      ready: { status: "true", reason: "Converged", message: "Ready" },
      synced: { status: "true", reason: "Converged", message: "What is there matches what was asked for" },
      dueIn: driftDelay(registration, random),
      priority: 2,
      fruitless: false
    }
  }
  const reason = (observation._tag === "Present" ? observation.reason : undefined) ?? "Progressing"
  const message =
    (observation._tag === "Present" ? observation.message : undefined) ??
    (open
      ? `Still to do: ${listed(base.differences, observation._tag === "Absent")}`
      : "Not ready yet; looked at again shortly")
  // On its way by itself, or steps remain: a look soon. Steps that change nothing back off like failures.
  const fruitless = open && steps > 0
  return {
    ...base,
    outcome: "progressing",
    phase: underway(claimed),
    ready: { status: "false", reason, message },
    synced: { status: open ? "false" : "true", reason: open ? reason : "Converged", message },
    dueIn: fruitless ? backoff(claimed.attempt, options, random) : poll(1_000),
    priority: 1,
    fruitless
  }
}

const waitingForChildren = (claimed: Claimed, options: EngineOptions): Verdict => {
  const { count = 0, first = "" } = claimed.children ?? {}
  const others = count > 1 ? ` and ${count - 1} more` : ""
  const message = `Waits until ${first}${others} in it ${count > 1 ? "are" : "is"} deleted`
  return {
    outcome: "deleting",
    phase: "deleting",
    ready: { status: "false", reason: "WaitingForChildren", message },
    synced: { status: "false", reason: "WaitingForChildren", message },
    status: undefined,
    differences: [],
    drift: undefined,
    driftEvents: [],
    dueIn: options.waitMs,
    priority: 1,
    fruitless: false,
    waitingOn: null,
    lastError: null,
    acted: false
  }
}

const judgeFailure = Effect.fnUntraced(function* (
  claimed: Claimed,
  options: EngineOptions,
  cause: Cause.Cause<ReconcileError>
) {
  const random = yield* Random.next
  const error = cause.reasons.find((reason) => reason._tag === "Fail")?.error
  const base = {
    status: undefined,
    differences: yield* Effect.map(claimed.reported, (reported) => reported.differences),
    drift: undefined,
    driftEvents: [],
    waitingOn: null,
    acted: true
  }
  if (error === undefined) {
    // The cause may hold anything: it goes to the log, and people get the first line.
    yield* Effect.logError("a reconciler failed unexpectedly", cause)
  }
  if (error?._tag === "Waiting") {
    const reason = error.reason ?? "WaitingForDependency"
    const verdict: Verdict = {
      ...base,
      outcome: "waiting",
      phase: claimed.deleting ? "deleting" : "waiting",
      ready: { status: "false", reason, message: error.message },
      synced: { status: "false", reason, message: error.message },
      dueIn: options.waitMs * (0.75 + random / 2),
      priority: 1,
      fruitless: false,
      waitingOn: error.on,
      lastError: null
    }
    return verdict
  }
  if (error?._tag === "Terminal") {
    const reason = error.reason ?? "InvalidSpec"
    const message = `${error.message}. Not tried again until the specification changes or a retry is asked for`
    const verdict: Verdict = {
      ...base,
      outcome: "terminal",
      phase: claimed.deleting ? "deleting" : "failed",
      ready: { status: "false", reason, message },
      synced: { status: "false", reason, message },
      dueIn: claimed.deleting ? options.stalledRetryMs : never,
      priority: 1,
      fruitless: true,
      lastError: error.message
    }
    return verdict
  }
  const said = error?.message ?? `Internal fault: ${firstLine(Cause.squash(cause))}`
  const reason = error?.reason ?? "ReconcileFailed"
  const dueIn = backoff(claimed.attempt, options, random)
  const message = `${said}. Try ${claimed.attempt + 1} failed; tried again in ${Math.max(1, Math.round(dueIn / 1000))} s`
  // A look that fails says nothing about readiness by itself; what was ready stays in doubt, not down.
  const wasReady = claimed.phase === "ready"
  const verdict: Verdict = {
    ...base,
    outcome: "retryable",
    phase: underway(claimed),
    ready: { status: wasReady ? "unknown" : "false", reason, message },
    synced: { status: "false", reason, message },
    dueIn,
    priority: 1,
    fruitless: true,
    lastError: said
  }
  return verdict
})

const firstLine = (defect: unknown): string =>
  (defect instanceof Error ? defect.message : "see the log").split("\n", 1)[0]?.slice(0, 200) ?? ""

/** Exponential backoff with full jitter, above a small floor; rare once stalled. */
const backoff = (attempt: number, options: EngineOptions, random: number): number => {
  const [base, cap] = options.backoffMs
  if (attempt + 1 >= options.stallAfter) return options.stalledRetryMs * (0.75 + random / 2)
  const ceiling = Math.min(cap, base * 2 ** attempt)
  return ceiling / 5 + random * ceiling * 0.8
}

const isFinal = (phase: Phase): boolean =>
  phase === "ready" || phase === "waiting" || phase === "failed" || phase === "deleted"

/** Writes the verdict out: conditions, deadlines, stalling, history, and the fields of the queue. */
const report = Effect.fnUntraced(function* (
  registration: Registration,
  claimed: Claimed,
  options: EngineOptions,
  verdict: Verdict,
  log: ReadonlyArray<OutsideCall>
) {
  const { conditions: previous } = yield* claimed.reported
  const attempt = verdict.fruitless ? claimed.attempt + 1 : 0
  const deadline = registration.kind.deadlineSeconds * 1000
  const overdue =
    !isFinal(verdict.phase) &&
    verdict.phase === claimed.phase &&
    claimed.phaseAge > deadline &&
    claimed.paused === null
  const exhausted = attempt >= options.stallAfter && verdict.outcome !== "terminal"
  const phase: Phase = overdue && !claimed.deleting && verdict.outcome !== "paused" ? "failed" : verdict.phase
  const late = `It has been ${claimed.phase} for longer than ${registration.kind.deadlineSeconds} s. `
  const ready = overdue
    ? { ...verdict.ready, reason: "DeadlineExceeded", message: late + verdict.ready.message }
    : verdict.ready

  const drift = findCondition(previous, "Drifted")
  const inputs: ReadonlyArray<ConditionInput> = [
    { type: "Ready", ...ready },
    { type: "Synced", ...verdict.synced },
    exhausted || overdue
      ? {
          type: "Stalled",
          status: "true",
          reason: overdue ? "DeadlineExceeded" : "NoProgress",
          message: overdue
            ? `${late}Tried rarely from now on; retry by hand once the cause is gone`
            : `${attempt} tries in a row made no progress. Tried rarely from now on; retry by hand once the cause is gone`
        }
      : { type: "Stalled", status: "false", reason: "Advancing", message: "Tries are making progress" },
    verdict.drift === "open" || (verdict.drift === undefined && drift?.status === "true")
      ? {
          type: "Drifted",
          status: "true",
          reason: "DriftFound",
          message:
            verdict.drift === "open"
              ? `Differs from what was asked for: ${listed(verdict.differences, false)}`
              : (drift?.message ?? "")
        }
      : { type: "Drifted", status: "false", reason: "NoDrift", message: "The last look found no difference" },
    claimed.paused === null
      ? { type: "Paused", status: "false", reason: "NotPaused", message: "Reconciling is not paused" }
      : {
          type: "Paused",
          status: "true",
          reason: "PausedByUser",
          message: `Paused by ${claimed.paused.by}: ${claimed.paused.reason}`
        }
  ]
  const conditions = nextConditions(previous, inputs, claimed.generation, claimed.now)
  const events: ReadonlyArray<EngineEvent> = [
    ...verdict.driftEvents,
    ...log
      .filter((call) => call.effect === "write")
      .map((call) => ({ type: "Outside" as const, reason: call.name, message: call.ok ? "done" : "failed" })),
    ...(verdict.lastError === null
      ? []
      : [{ type: "Warning" as const, reason: verdict.synced.reason, message: verdict.lastError }]),
    ...transitions(previous, conditions)
      .filter((condition) => verdict.lastError === null || condition.type !== "Synced")
      .map((condition) => ({
        type: eventType(condition),
        reason: condition.reason,
        message: `${condition.type} is ${condition.status}: ${condition.message}`
      }))
  ]
  const result: RunResult = {
    outcome: verdict.outcome,
    driftFound: verdict.driftEvents.length > 0,
    recorded: {
      ...quiet(claimed),
      // A stalled resource keeps its slow pace whatever the look said.
      dueIn:
        overdue && verdict.outcome !== "ready"
          ? Math.max(verdict.dueIn, options.stalledRetryMs / 4)
          : verdict.dueIn,
      priority: verdict.priority,
      attempt,
      waitingOn: verdict.waitingOn,
      lastError: verdict.lastError,
      handledRetry: claimed.retryToken,
      change: {
        status: verdict.status === undefined ? claimed.status : verdict.status,
        phase,
        conditions,
        differences: verdict.differences,
        observedGeneration:
          verdict.outcome === "retryable" || verdict.outcome === "paused"
            ? claimed.observedGeneration
            : claimed.generation,
        settled:
          verdict.outcome === "ready" &&
          conditions.every((condition) => condition.status === (isGood(condition.type) ? "true" : "false")),
        deleting: claimed.deleting,
        gone: verdict.outcome === "deleted",
        events
      }
    }
  }
  return result
})
