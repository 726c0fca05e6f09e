/** What a process left behind that was killed at the wrong moment: containers that no app knows, and programs in others. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { endOverduePrograms } from "#src/infra/containers/end-program.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Apps } from "./Apps.ts"

/** Removes them; answers how many. Instances are known before they have a container. */
export const sweep = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const { label } = yield* Installation
  const apps = yield* Apps
  if ((yield* engine.state)._tag !== "Ready") return 0
  const found = (yield* engine.list(label)).flatMap(({ name, labels }) => {
    const { "svc.organization": orgId, "svc.instance": uid } = labels
    return orgId === undefined || uid === undefined ? [] : [{ name, orgId, uid }]
  })
  const known = yield* apps.known(found)
  const stray = found.filter(({ uid }) => !known.has(uid))
  // One that cannot be removed keeps no other.
  const [removed, failures] = yield* Effect.partition(stray, ({ name }) => engine.remove(name))
  if (failures.length > 0)
    yield* Effect.logWarning(
      "containers of no app could not be removed",
      failures.map(({ message }) => message)
    )
  return removed.length
})

/** Ends programs in instances whose time is over; answers how many. */
export const endOverdue = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const { label } = yield* Installation
  const containers = (yield* engine.running(label)).filter(
    ({ labels }) => labels["svc.instance"] !== undefined
  )
  return yield* endOverduePrograms(new Set(containers.map(({ id }) => id)), yield* Clock.currentTimeMillis)
})

export const layer = Layer.effectDiscard(
  Effect.andThen(
    periodic({ does: "remove containers of no app", every: "5 minutes" }, sweep),
    periodic({ does: "end programs in instances that nobody waits for", every: "5 minutes" }, endOverdue)
  )
)
