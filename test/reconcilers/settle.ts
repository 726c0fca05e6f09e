/** Drives a reconciler as the engine does: look, take one step, look again, until it is where it should be. */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import type { Observation, ReconcileError, Reconciler, Resource } from "#src/engine/Reconciler.ts"

export type Target = Reconciler<unknown, unknown>

/** Looking may not write, so a write here fails the test whatever else happens. */
export const look = (
  target: Target,
  resource: Resource
): Effect.Effect<Observation<unknown>, ReconcileError> =>
  Effect.gen(function* () {
    const outer = yield* ExternalCallHook
    return yield* target.observe(resource).pipe(
      Effect.provideService(ExternalCallHook, {
        before: (name, effect) =>
          effect === "write"
            ? Effect.die(new Error(`observe made the outside write ${name}`))
            : (outer?.before(name, effect) ?? Effect.void),
        after: (name, effect) => outer?.after(name, effect) ?? Effect.void
      })
    )
  })

/** Until a resource is ready, or absent when it is deleted. `repeat` takes every step that many times. */
export const reachGoal = Effect.fnUntraced(function* (
  target: Target,
  resource: Resource,
  settleMs = 30_000,
  repeat = 1
) {
  const deadline = (yield* Clock.currentTimeMillis) + settleMs
  let trouble = "it made no progress"
  // What was seen last is recorded, and the next step is taken from there.
  let current = resource
  while ((yield* Clock.currentTimeMillis) < deadline) {
    const attempt = yield* Effect.result(
      Effect.gen(function* () {
        const observation = yield* look(target, current)
        if (observation._tag === "Present") current = recorded(current, observation)
        if (resource.deleting ? observation._tag === "Absent" : isReady(observation)) return true
        const maintenance = observation._tag === "Present" ? (observation.maintenance ?? []) : []
        if (
          observation._tag === "Present" &&
          !resource.deleting &&
          observation.differences.length + maintenance.length === 0
        ) {
          trouble = observation.message ?? "it is not ready and nothing differs"
          const poll = Duration.toMillis(Duration.fromInputUnsafe(observation.pollAfter ?? 200))
          yield* Effect.sleep(Math.min(poll, 200))
          return false
        }
        const step = resource.deleting ? target.remove : target.converge
        for (let i = 0; i < repeat; i++) yield* step(current, observation)
        trouble =
          observation._tag === "Absent"
            ? "it is absent"
            : [...observation.differences, ...maintenance]
                .map(({ field, message }) => `${field}: ${message}`)
                .join("; ")
        return false
      })
    )
    if (attempt._tag === "Success") {
      if (attempt.success) return
      continue
    }
    if (attempt.failure._tag === "Terminal") return yield* attempt.failure
    trouble = attempt.failure.message
    yield* Effect.sleep("100 millis")
  }
  return yield* Effect.die(new Error(`not settled after ${settleMs} ms: ${trouble}`))
})

/** A resource with what an observation tells, as the store has it afterwards. */
export const recorded = <R extends Resource>(resource: R, observation: Observation<unknown>): R =>
  observation._tag === "Absent"
    ? resource
    : {
        ...resource,
        status: observation.status,
        facts: { ...resource.facts, ...observation.facts }
      }

const isReady = (observation: Observation<unknown>): boolean =>
  observation._tag === "Present" &&
  observation.ready &&
  observation.differences.length === 0 &&
  (observation.maintenance ?? []).length === 0 &&
  // Something that is still on its way is looked at soon.
  Duration.toMillis(Duration.fromInputUnsafe(observation.pollAfter ?? "1 minute")) >= 10_000
