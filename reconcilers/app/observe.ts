/** What there is of an app and its containers, and which step that makes due. Looks, and never touches. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { AppSpec } from "#schemas/app.ts"
import { AppFollowers } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import type { Instance } from "#src/apps/app-state.ts"
import { healthOf } from "#src/apps/health.ts"
import { AppOptions } from "#src/apps/options.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { type Container, ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { connectionsTo } from "#src/infra/host/connections.ts"
import type { makePlans } from "./plan.ts"
import { type AppResource, retryable, soon } from "./resource.ts"
import type { SeenInstance, Situation, Step } from "./situation.ts"
import { decide } from "./state-machine.ts"

const mostChecks = 10_000
/** Most programs listen soon after they were started, and requests may be waiting for them. */
const youngMs = 5_000
const patienceMs = 300

export interface Survey extends Pick<Situation, "state" | "site"> {
  readonly step: Step
}

export const makeObserver = Effect.fnUntraced(function* ({
  revisionOf
}: Pick<Effect.Success<typeof makePlans>, "revisionOf">) {
  const engine = yield* ContainerEngine
  const apps = yield* Apps
  const followers = yield* AppFollowers
  const installation = yield* Installation
  const options = yield* AppOptions

  /** The last answer of each instance, of those that are running. */
  const checks = new Map<string, Pick<SeenInstance, "health" | "askedAt">>()

  const containerOf = Effect.fnUntraced(function* (instance: Instance) {
    const { uid, containerMade } = instance
    const found = containerMade ? yield* engine.inspect(installation.nameOf(uid)) : Option.none<Container>()
    return { instance, container: Option.getOrUndefined(found) }
  })

  const look = Effect.fnUntraced(function* (
    instance: Instance,
    container: Container | undefined,
    spec: AppSpec,
    connections: number
  ) {
    const { logOwnerAgeMs, logComplete, uid, state, address, port } = instance
    const now = yield* Clock.currentTimeMillis
    const before = checks.get(uid)
    const isAsked =
      (state === "starting" ||
        (state === "healthy" &&
          spec.healthCheck.failures > 0 &&
          now >= (before?.askedAt ?? 0) + options.livenessMs)) &&
      container?.state === "running" &&
      !container.paused
    if (isAsked && address !== null) {
      const isYoung = state === "starting" && now < (container.startedAt?.getTime() ?? 0) + youngMs
      const health = yield* externalCall(
        "apps.health",
        "read"
      )(healthOf({ address, port }, spec.healthCheck, isYoung ? patienceMs : 0))
      // Of apps that have gone since.
      if (checks.size >= mostChecks) checks.clear()
      checks.set(uid, { health, askedAt: now })
    } else if (state !== "healthy" || container?.paused === true) checks.delete(uid)
    const { health, askedAt } = checks.get(uid) ?? { health: undefined, askedAt: 0 }
    const followed =
      followers.follows(uid) || logComplete || (logOwnerAgeMs !== null && logOwnerAgeMs < options.followerMs)
    const seen: SeenInstance = { instance, container, health, askedAt, followed, connections }
    return seen
  })

  return Effect.fnUntraced(function* (resource: AppResource) {
    const { orgId, uid, parentUid, spec } = resource
    const [found, place, target] = yield* Effect.all(
      [
        retryable(apps.find({ orgId, uid })),
        retryable(apps.site(orgId, parentUid ?? "")),
        revisionOf(resource)
      ],
      { concurrency: 3 }
    )
    const state = Option.getOrUndefined(found)
    const site = Option.getOrUndefined(place)
    const instances = state?.instances ?? []
    const looked = yield* Effect.result(Effect.forEach(instances, containerOf, { concurrency: 8 }))
    if (looked._tag === "Failure") {
      const engineState = yield* engine.state
      const startable = engineState._tag === "Down" && engineState.startable
      if (!startable) return yield* soon(Effect.fail(looked.failure))
      const step: Step = { do: "startEngine" }
      return { state, site, step } satisfies Survey
    }
    const connections = yield* connectionsTo(instances.flatMap(({ address }) => address ?? []))
    const seen = yield* Effect.forEach(
      looked.success,
      ({ instance, container }) =>
        look(instance, container, spec, connections.get(instance.address ?? "") ?? 0),
      { concurrency: 8 }
    )
    const now = yield* Clock.currentTimeMillis
    const step = decide({ now, spec, state, target, seen, site, options })
    return { state, site, step } satisfies Survey
  })
})
