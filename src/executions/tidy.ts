/**
 * What goes by itself: executions that ended long ago, and containers that no execution knows, which a process left
 * behind that was killed at the wrong moment.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { type Retired, retire } from "#src/store/retire.ts"
import { Images } from "./Images.ts"
import { Pulls } from "./Pulls.ts"
import { Runs } from "./Runs.ts"
import { settings } from "./settings.ts"

const batch = 500

/** Asks for the deletion of what ended long ago; answers how many. */
export const retireExecutions = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { keptDays } = yield* settings
  // Index: execution_age.
  const old = yield* repeatable(sql<Retired>`
    select e.org_id as "orgId", e.uid from execution e
    join resource r on r.org_id = e.org_id and r.uid = e.uid
    where e.finished_at < now() - make_interval(days => ${keptDays}::int)
      and r.deletion_requested_at is null and not r.protected
    order by e.finished_at limit ${batch}::int`)
  return yield* retire(old, "executions.retention")
})

/** Removes containers of this control plane that no execution knows. Executions are known before they have one. */
export const sweep = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const { label } = yield* Installation
  const runs = yield* Runs
  yield* engine.forgetNetworks
  if ((yield* engine.state)._tag !== "Ready") return 0
  const found = (yield* engine.list(label)).flatMap(({ name, labels }) => {
    const { "svc.organization": orgId, "svc.execution": uid } = labels
    return orgId === undefined || uid === undefined ? [] : [{ name, orgId, uid }]
  })
  const known = yield* runs.known(found)
  const stray = found.filter(({ uid }) => !known.has(uid))
  // One that cannot be removed keeps no other.
  const [removed, failures] = yield* Effect.partition(stray, ({ name }) => engine.remove(name))
  if (failures.length > 0)
    yield* Effect.logWarning(
      "containers of no execution could not be removed",
      failures.map(({ message }) => message)
    )
  return removed.length
})

/** Stops fetching what nobody waits for in this process. */
export const sweepPulls = Effect.flatMap(Pulls, ({ sweep }) => sweep)

/** Lets go of images that no execution asked for lately. */
export const prune = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const images = yield* Images
  return (yield* engine.state)._tag === "Ready" ? yield* images.prune : 0
})

export const layer = Layer.mergeAll(
  Layer.effectDiscard(
    periodic({ does: "ask for the deletion of old executions", every: "10 minutes" }, retireExecutions)
  ),
  Layer.effectDiscard(
    periodic({ does: "stop fetching what nobody waits for", every: "1 minute" }, sweepPulls)
  ),
  Layer.effectDiscard(periodic({ does: "remove containers of no execution", every: "5 minutes" }, sweep)),
  Layer.effectDiscard(periodic({ does: "remove images that nobody asked for", every: "1 hour" }, prune))
)
