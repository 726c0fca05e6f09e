/** Containers that no app knows, which a process left behind that was killed at the wrong moment. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
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

export const layer = Layer.effectDiscard(
  periodic({ does: "remove containers of no app", every: "5 minutes" }, sweep)
)
