/**
 * An execution is a container that runs once. What this keeps true: it goes from state to state by the rules of
 * `state-machine.ts`, every state but the last has a deadline, what it reserved of the budget is settled when it has
 * ended, and nothing is left of its container.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Execution } from "#schemas/execution.ts"
import { absent, register } from "#src/engine/Reconciler.ts"
import { Followers } from "#src/executions/Followers.ts"
import { Pulls } from "#src/executions/Pulls.ts"
import { Runs } from "#src/executions/Runs.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { fenced, makeActions, write } from "./actions.ts"
import { makeObserver, retryable } from "./observe.ts"
import { needsContainer } from "./state-machine.ts"
import { noteOf, reasonOf, statusMessages, statusOf } from "./status.ts"

export const layer = register(
  Execution,
  { driftInterval: "6 hours", concurrency: 64 },
  Effect.gen(function* () {
    const engine = yield* ContainerEngine
    const runs = yield* Runs
    const pulls = yield* Pulls
    const followers = yield* Followers
    const installation = yield* Installation
    const survey = yield* makeObserver
    const { take, settle } = yield* makeActions

    return {
      observe: Effect.fnUntraced(function* (resource) {
        if (resource.deleting) {
          const left = yield* retryable(runs.find(resource))
          return Option.isNone(left)
            ? absent
            : { _tag: "Present" as const, status: statusOf(left.value), ready: false, differences: [] }
        }
        const { run, step } = yield* survey(resource)
        if (run === undefined) return absent
        const present = { _tag: "Present" as const, status: statusOf(run) }
        if (step.do === "nothing") return { ...present, ready: true, differences: [], ...noteOf(run) }
        if (step.do === "wait") {
          const { reason, message, forMs } = step
          return { ...present, ready: false, differences: [], reason, message, pollAfter: forMs }
        }
        return {
          ...present,
          ready: false,
          differences: [{ field: "/status", message: statusMessages[step.do] }],
          ...reasonOf(run)
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { run, step } = yield* survey(resource)
        yield* take(resource, run, step)
      }),
      remove: Effect.fnUntraced(function* (resource) {
        const { orgId, uid, fence } = resource
        const ref = { orgId, uid, fence }
        const found = yield* retryable(runs.find(ref))
        if (Option.isNone(found)) {
          // It never began, or all of this was done before: then this changes nothing.
          return yield* settle(resource, { startedAt: null, finishedAt: new Date(0) })
        }
        const run = found.value
        yield* fenced(runs.claim(ref))
        yield* pulls.stop(uid)
        yield* followers.stop(uid)
        if (needsContainer(run)) {
          const state = yield* engine.state
          if (state._tag === "Down" && state.startable) yield* retryable(engine.start)
          yield* retryable(engine.remove(installation.nameOf(uid)))
        }
        if (run.finishedAt === null) {
          const finishedAt = new Date(yield* Clock.currentTimeMillis)
          yield* settle(resource, { startedAt: run.startedAt, finishedAt })
        }
        yield* write("forget", runs.forget(ref))
      })
    }
  })
)
