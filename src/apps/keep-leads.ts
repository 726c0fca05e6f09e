/**
 * Keeps what containers of environments reach of this machine to what their environments have: a database that comes later
 * is reached, and one that goes is not. Looked at when something changes in the store, and all of it now and then, for what
 * an announcement did not tell and for rules that somebody else has changed.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Semaphore from "effect/Semaphore"
import { answered } from "#src/engine/answered.ts"
import { ContainerEngine, type ReachableService } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { periodic } from "#src/loops/periodic.ts"
import { announcements } from "#src/store/announcements.ts"
import { EnvironmentServices } from "./EnvironmentServices.ts"

/** Between two looks: much is announced while much goes on. */
const rest = "1 second"

const isEqual = (
  some: ReadonlyArray<ReachableService>,
  others: ReadonlyArray<ReachableService> | undefined
) =>
  some.length === others?.length &&
  some.every(({ port, address }, at) => others[at]?.port === port && others[at]?.address === address)

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const engine = yield* ContainerEngine
    const environments = yield* EnvironmentServices
    const { label } = yield* Installation
    const changed = yield* announcements("svc_change")
    /** A look that began earlier would take back what a later one has done. */
    const looks = yield* Semaphore.make(1)
    /** By the containers' names, as this process has seen to it. */
    let seen = new Map<string, ReadonlyArray<ReachableService>>()

    /** `all`: also what should be as it is. */
    const look = Effect.fnUntraced(function* (all: boolean) {
      // An engine that is not there, or does not answer, has no containers to look after.
      const listed = yield* Effect.option(engine.list(label))
      const running = Option.getOrElse(listed, () => []).flatMap(({ name, state, labels }) => {
        const { "svc.organization": orgId, "svc.environment": environmentUid } = labels
        return state !== "running" || orgId === undefined || environmentUid === undefined
          ? []
          : [{ name, orgId, environmentUid }]
      })
      let wanted: typeof seen = new Map()
      const read = Effect.map(environments.reachable(running), (reachable) => {
        wanted = new Map(
          running.map(({ name, environmentUid }) => [name, reachable.get(environmentUid) ?? []])
        )
        return all ? wanted : new Map([...wanted].filter(([name, some]) => !isEqual(some, seen.get(name))))
      })
      if (running.length > 0) yield* engine.lead(read)
      seen = wanted
    }, looks.withPermit)

    yield* periodic(
      { does: "lead containers to the services of their environments", every: "1 minute" },
      look(true)
    )
    yield* Queue.take(changed).pipe(
      Effect.andThen(answered("lead containers to other services")(look(false))),
      // The next look at all of them mends it.
      Effect.catchCause((cause) =>
        Effect.logWarning("could not lead containers to services that have changed", cause)
      ),
      Effect.andThen(Effect.sleep(rest)),
      Effect.forever,
      Effect.forkScoped
    )
  })
)
