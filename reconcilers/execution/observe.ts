/** What there is of an execution and its container, and which step that makes due. Looks, and never touches. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ExecutionSpec, ExecutionStatus } from "#schemas/execution.ts"
import { type Resource, Retryable } from "#src/engine/Reconciler.ts"
import { Followers } from "#src/executions/Followers.ts"
import { ExecutionOptions } from "#src/executions/options.ts"
import { Pulls } from "#src/executions/Pulls.ts"
import { type Run, Runs } from "#src/executions/Runs.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { decide, needsContainer, type Seen } from "./state-machine.ts"

export type ExecutionResource = Resource<ExecutionSpec, ExecutionStatus>

export const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, (error) => new Retryable({ message: error.message, cause: error }))

export const makeObserver = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const runs = yield* Runs
  const pulls = yield* Pulls
  const followers = yield* Followers
  const installation = yield* Installation
  const options = yield* ExecutionOptions

  const look = Effect.fnUntraced(function* (uid: string, run: Run | undefined): Effect.fn.Return<Seen> {
    if (run === undefined) return { _tag: "Gone" }
    if (!needsContainer(run)) {
      // Before anything is made: is there an engine that could?
      if (run.finishedAt !== null) return { _tag: "Gone" }
      const state = yield* engine.state
      if (state._tag === "Ready") return { _tag: "Gone" }
      const missing = state._tag === "Missing"
      return { _tag: "Silent", startable: !missing && state.startable, missing, message: state.message }
    }
    const found = yield* Effect.result(engine.inspect(installation.nameOf(uid)))
    if (found._tag === "Success")
      return Option.isSome(found.success)
        ? { _tag: "There", container: found.success.value }
        : { _tag: "Gone" }
    const { message, reason } = found.failure
    const missing = reason === "HostDependencyMissing"
    const state = missing ? undefined : yield* engine.state
    return { _tag: "Silent", startable: state?._tag === "Down" && state.startable, missing, message }
  })

  return Effect.fnUntraced(function* ({ orgId, uid, spec }: ExecutionResource) {
    const run = Option.getOrUndefined(yield* retryable(runs.find({ orgId, uid })))
    const seen = yield* look(uid, run)
    const now = yield* Clock.currentTimeMillis
    const followed =
      followers.follows(uid) ||
      (run?.logOwnerAgeMs != null && run.logOwnerAgeMs < options.followerMs) ||
      run?.logComplete === true
    return { run, step: decide({ now, spec, run, seen, pull: pulls.look(uid), followed, options }) }
  })
})
