/**
 * An app is what answers at its environment's address. What this keeps true: as many healthy instances as are wanted run
 * the chosen deployment with the variables of now, requests go to them and to nothing else, a version that does not get
 * healthy replaces none that does, and nothing is left of instances that have ended.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { App, type AppStatus } from "#schemas/app.ts"
import { AppFollowers } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import type { AppState } from "#src/apps/app-state.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { absent, register } from "#src/engine/Reconciler.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { makeActions, takenBy, write } from "./actions.ts"
import { makeObserver, type Survey } from "./observe.ts"
import { makePlans } from "./plan.ts"
import { retryable } from "./resource.ts"
import type { Step } from "./situation.ts"

export const layer = register(
  App,
  { driftInterval: "10 minutes", concurrency: 64 },
  Effect.gen(function* () {
    const apps = yield* Apps
    const engine = yield* ContainerEngine
    const followers = yield* AppFollowers
    const installation = yield* Installation
    const plans = yield* makePlans
    const survey = yield* makeObserver(plans)
    const take = yield* makeActions(plans)
    const taken = takenBy(yield* EdgeNodes)
    /** The last survey of each app that needs a step, for the step that follows it. */
    const surveys = new Map<string, Survey & { readonly fence: bigint }>()

    return {
      observe: Effect.fnUntraced(function* (resource) {
        if (resource.deleting) {
          const left = yield* retryable(apps.find(resource))
          return Option.isNone(left)
            ? absent
            : { _tag: "Present" as const, status: statusOf(left.value), ready: false, differences: [] }
        }
        const surveyed = yield* survey(resource)
        const { state, site, step } = surveyed
        if (step.do === "rest" || step.do === "wait") surveys.delete(resource.uid)
        else surveys.set(resource.uid, { ...surveyed, fence: resource.fence })
        if (state === undefined) return absent
        const { power, servingRevision } = state.row
        const present = { _tag: "Present" as const, status: statusOf(state) }
        // A sleeping app answers too, a moment later.
        const ready = servingRevision !== null && (power !== "awake" || statusOf(state).healthy > 0)
        if (step.do === "rest") {
          const note = noteOf(state, site?.origin ?? null)
          return { ...present, ready, differences: [], pollAfter: Math.max(1, step.forMs), ...note }
        }
        if (step.do === "wait") {
          const { reason, message } = step
          const told = ready ? { note: { reason, message } } : { reason, message }
          return { ...present, ready, differences: [], pollAfter: Math.max(1, step.forMs), ...told }
        }
        const due = [{ field: "/status", message: messages[step.do] }]
        return ready
          ? { ...present, ready, differences: [], maintenance: due }
          : { ...present, ready, differences: due, reason: "InstancesStarting" }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const before = surveys.get(resource.uid)
        surveys.delete(resource.uid)
        const { state, step } = before?.fence === resource.fence ? before : yield* survey(resource)
        yield* take(resource, step, state?.row)
      }),
      remove: Effect.fnUntraced(function* (resource) {
        const { orgId, uid, fence } = resource
        const ref = { orgId, uid, fence }
        surveys.delete(uid)
        const found = Option.getOrUndefined(yield* retryable(apps.find(ref)))
        if (found === undefined) return
        // First nobody is sent there any more: the addresses may be somebody else's next.
        yield* write("unroute", apps.unroute(ref))
        yield* taken
        const made = found.instances.filter(({ containerMade }) => containerMade)
        const state = yield* engine.state
        if (made.length > 0 && state._tag === "Down" && state.startable) yield* retryable(engine.start)
        for (const instance of made) {
          yield* followers.stop(instance.uid)
          yield* retryable(engine.remove(installation.nameOf(instance.uid)))
        }
        yield* write("forget", apps.forget(ref))
      })
    }
  })
)

const messages: Readonly<Record<Exclude<Step["do"], "wait" | "rest">, string>> = {
  startEngine: "the container engine is to be started",
  begin: "it is to begin",
  add: "an instance is to be started",
  make: "the container of an instance is to be made",
  start: "the container of an instance is to be started",
  started: "an instance has begun",
  follow: "what an instance prints is to be kept",
  healthy: "an instance has become healthy",
  ended: "an instance has ended",
  checked: "the health of an instance is to be noted",
  scale: "another number of instances is needed",
  stop: "instances are to end",
  kill: "an instance is to be ended by force",
  remove: "what is left of an instance is to be removed",
  reject: "a version that does not get healthy is to be given up",
  serve: "requests are to go to other instances",
  active: "requests are under way",
  steady: "its instances have been steady",
  fallAsleep: "nobody uses it: requests are to be held",
  pause: "its instances are to be paused",
  paused: "its instances are paused",
  stopped: "its instances are to be stopped",
  unpause: "its instances are to go on",
  wake: "requests are to reach it again"
}

const statusOf = ({ row, instances }: AppState): AppStatus => ({
  deployment: row.servingDeployment,
  power: row.power,
  healthy: instances.filter(({ state }) => state === "healthy").length
})

const noteOf = ({ row }: AppState, origin: string | null) => {
  if (row.rejectedRevision !== null && row.rejectedError !== null)
    return {
      note: {
        reason: "RollFailed",
        message: `Ready, but a new version was given up: ${row.rejectedError}`
      }
    }
  if (origin !== null)
    return {
      note: {
        reason: "OriginElsewhere",
        message: `Ready, but the environment's origin ${origin} takes the requests; take the origin back to have the app answer`
      }
    }
  return {}
}
