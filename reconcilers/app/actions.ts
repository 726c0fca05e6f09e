/** The steps of an app, each taken by whoever holds the newest fence, and each safe to take again. */
import { randomUUIDv7 } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { AppFollowers } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import type { AppRow, Crashed, Instance } from "#src/apps/app-state.ts"
import { AppOptions } from "#src/apps/options.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { Retryable } from "#src/engine/Reconciler.ts"
import { ContainerEngine, type ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { crashOf } from "./crash.ts"
import type { makePlans } from "./plan.ts"
import { type AppResource, retryable, soon } from "./resource.ts"
import type { Step } from "./situation.ts"

/** False: somebody else was here since, and this reconcile is to do nothing more. */
export const fenced = <E extends { readonly message: string }>(change: Effect.Effect<boolean, E>) =>
  Effect.flatMap(retryable(change), (done) =>
    done ? Effect.void : Effect.fail(new Retryable({ message: "A later reconcile works on the app" }))
  )
export const write = <E extends { readonly message: string }>(
  name: string,
  change: Effect.Effect<boolean, E>
) => fenced(externalCall(`apps.${name}`, "write")(change))

/** Every edge that is at work serves what was stored. Where none is nobody is sent anywhere. */
export const takenBy = (nodes: EdgeNodes["Service"]) =>
  Effect.flatMap(retryable(nodes.live), (live) =>
    live.length === 0 ? Effect.void : retryable(externalCall("edge.ask", "read")(nodes.askAll))
  )

export const makeActions = Effect.fnUntraced(function* ({
  planOf,
  runtime,
  keepRevision,
  servicesOf
}: Pick<Effect.Success<typeof makePlans>, "planOf" | "runtime" | "keepRevision" | "servicesOf">) {
  const engine = yield* ContainerEngine
  const apps = yield* Apps
  const followers = yield* AppFollowers
  const nodes = yield* EdgeNodes
  const installation = yield* Installation
  const options = yield* AppOptions

  const nameOf = ({ uid }: Instance) => installation.nameOf(uid)

  const taken = takenBy(nodes)

  /** The engine refuses: as good as an instance that ended at once. */
  const orEnded = Effect.fnUntraced(function* (
    resource: AppResource,
    instance: Instance,
    after: Crashed | undefined,
    act: Effect.Effect<void, ContainerError | Retryable>
  ) {
    const done = yield* Effect.result(act)
    if (done._tag === "Success") return
    if (done.failure._tag === "Retryable") return yield* done.failure
    const { message, reason } = done.failure
    if (reason === "Unreachable" || reason === "HostDependencyMissing") return yield* soon(act)
    const now = yield* Clock.currentTimeMillis
    const how = { at: new Date(now), exitCode: null, reason: message }
    yield* write("ended", apps.ended(resource, instance.uid, how, after))
  })

  return Effect.fnUntraced(function* (resource: AppResource, step: Step, row: AppRow | undefined) {
    const { orgId, uid, fence, parentUid } = resource
    const ref = { orgId, uid, fence }
    if (step.do === "begin")
      return yield* write("begin", apps.begin({ ...ref, environmentUid: parentUid ?? "" }))
    yield* fenced(apps.claim(ref))
    const now = yield* Clock.currentTimeMillis
    const afterCrash = (instance: Instance) =>
      row === undefined ? undefined : crashOf(options, row, instance, now)
    const wake = write("wake", apps.wake(ref, new Date(now)))
    switch (step.do) {
      case "wait":
      case "rest":
        return
      case "startEngine":
        return yield* soon(engine.start)
      case "add": {
        yield* keepRevision(resource, step.of.revision)
        const instance = { uid: randomUUIDv7(), ...step.of, port: resource.spec.port, at: new Date(now) }
        return yield* write("add", apps.add(ref, instance))
      }
      case "make": {
        const { instance } = step
        const plan = yield* planOf(resource, instance)
        if (!instance.containerMade) yield* write("making", apps.making(ref, instance.uid, plan))
        return yield* orEnded(resource, instance, afterCrash(instance), Effect.asVoid(engine.create(plan)))
      }
      case "start": {
        const services = servicesOf(resource, step.instance)
        return yield* orEnded(
          resource,
          step.instance,
          afterCrash(step.instance),
          engine.run(nameOf(step.instance), { runtime, services })
        )
      }
      case "started":
        yield* write("started", apps.started(ref, step.instance.uid, step.address, step.at))
        return yield* followers.start({ orgId, uid: step.instance.uid }, nameOf(step.instance))
      case "follow":
        return yield* followers.start({ orgId, uid: step.instance.uid }, nameOf(step.instance))
      case "healthy":
        return yield* write("healthy", apps.healthy(ref, step.instance.uid))
      case "ended": {
        const after = step.crash ? afterCrash(step.instance) : undefined
        return yield* write("ended", apps.ended(ref, step.instance.uid, step.how, after))
      }
      case "checked": {
        const { instance, crash, ...how } = step
        const after = crash ? afterCrash(instance) : undefined
        return yield* write("checked", apps.checked(ref, instance.uid, how, after))
      }
      case "scale":
        return yield* write("scale", apps.scale(ref, step.to, new Date(now)))
      case "stop": {
        // Its address may be somebody else's as soon as it has ended.
        if (step.instances.some(({ state }) => state === "draining")) yield* taken
        const uids = step.instances.map((one) => one.uid)
        const how = { at: new Date(now), why: step.why }
        const [first] = step.instances
        const after = step.crash && first !== undefined ? afterCrash(first) : undefined
        yield* write("stopping", apps.stopping(ref, uids, how, after))
        // One that cannot be told is made to end later; the others hear it now.
        const [, failed] = yield* Effect.partition(
          step.instances.filter(({ containerMade }) => containerMade),
          tell,
          { concurrency: 8 }
        )
        if (failed.length > 0)
          yield* Effect.logDebug(
            "instances could not be told to end",
            failed.map(({ message }) => message)
          )
        return
      }
      case "kill":
        return yield* soon(engine.signal(nameOf(step.instance), "SIGKILL"))
      case "remove": {
        const { instance } = step
        yield* followers.stop(instance.uid)
        yield* retryable(engine.remove(nameOf(instance)))
        return yield* write("removed", apps.removed(ref, instance.uid))
      }
      case "reject":
        return yield* write("reject", apps.reject(ref, { ...step.what, error: step.error }))
      case "serve": {
        const { what, target, route } = step
        const instances = step.instances.map((one) => one.uid)
        yield* write("serve", apps.serve(ref, { ...what, target, instances, route, at: new Date(now) }))
        return yield* taken
      }
      case "active":
        return yield* write("active", apps.active(ref))
      case "steady":
        return yield* write("steady", apps.steady(ref))
      case "fallAsleep":
        yield* write("fallAsleep", apps.fallAsleep(ref, new Date(now)))
        return yield* taken
      case "pause":
        yield* taken
        return yield* Effect.forEach(step.instances, (instance) => soon(engine.pause(nameOf(instance))), {
          discard: true,
          concurrency: 8
        })
      case "paused":
        return yield* write("paused", apps.power(ref, "paused"))
      case "stopped":
        return yield* write("stopped", apps.power(ref, "stopped"))
      case "unpause":
        yield* Effect.forEach(step.instances, (instance) => soon(engine.unpause(nameOf(instance))), {
          discard: true,
          concurrency: 8
        })
        return step.wake ? yield* wake : undefined
      case "wake":
        return yield* wake
    }
  })

  function tell(instance: Instance) {
    // What is paused hears nothing.
    return Effect.andThen(
      Effect.ignore(engine.unpause(nameOf(instance))),
      engine.signal(nameOf(instance), "SIGTERM")
    )
  }
})
