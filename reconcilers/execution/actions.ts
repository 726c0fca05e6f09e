/** The steps of an execution, each taken by whoever holds the newest fence, and each safe to take again. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Catalog, executionMicroUsd } from "#src/catalog/Catalog.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { Retryable } from "#src/engine/Reconciler.ts"
import { Followers } from "#src/executions/Followers.ts"
import { ExecutionOptions } from "#src/executions/options.ts"
import { Pulls } from "#src/executions/Pulls.ts"
import { type Ending, type Run, Runs } from "#src/executions/Runs.ts"
import { settings } from "#src/executions/settings.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { type ExecutionResource, retryable } from "./observe.ts"
import { makePlans } from "./plan.ts"
import type { Step } from "./state-machine.ts"

/** False: somebody else was here since, and this reconcile is to do nothing more. */
export const fenced = <E extends { readonly message: string }>(change: Effect.Effect<boolean, E>) =>
  Effect.flatMap(retryable(change), (done) =>
    done ? Effect.void : Effect.fail(new Retryable({ message: "A later reconcile works on the execution" }))
  )
export const write = <E extends { readonly message: string }>(
  name: string,
  change: Effect.Effect<boolean, E>
) => fenced(externalCall(`executions.${name}`, "write")(change))

/** The engine is away: asked again soon, because deadlines of the execution's own say how long. */
const soon = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(
    self,
    (error) =>
      new Retryable({
        message: error.message,
        cause: error,
        reason: "EngineUnreachable",
        againAfterMs: 2_000
      })
  )

export const makeActions = Effect.gen(function* () {
  const engine = yield* ContainerEngine
  const runs = yield* Runs
  const deployments = yield* Deployments
  const pulls = yield* Pulls
  const followers = yield* Followers
  const budgets = yield* Budgets
  const catalog = yield* Catalog
  const installation = yield* Installation
  const options = yield* ExecutionOptions
  const { memoryMb: mostMemoryMb } = yield* settings
  const { pullRequest, planOf, runtimeOf, servicesOf } = yield* makePlans

  const settle = (
    resource: ExecutionResource,
    { startedAt, finishedAt }: Pick<Ending, "startedAt" | "finishedAt">
  ) => {
    const { orgId, uid, projectId, spec } = resource
    const seconds = startedAt === null ? 0 : (finishedAt.getTime() - startedAt.getTime()) / 1000
    return retryable(
      budgets.settle({
        orgId,
        projectId: projectId ?? "",
        uid,
        microUsd: executionMicroUsd(catalog, spec.resources, seconds)
      })
    )
  }

  const take = Effect.fnUntraced(function* (resource: ExecutionResource, run: Run | undefined, step: Step) {
    const { orgId, uid, fence } = resource
    const ref = { orgId, uid, fence }
    const name = installation.nameOf(uid)
    if (step.do === "begin" || run === undefined)
      return yield* write("begin", runs.begin({ ...ref, projectId: resource.projectId ?? "" }))
    yield* fenced(runs.claim(ref))
    switch (step.do) {
      case "wait":
      case "nothing":
        return
      case "startEngine":
        return yield* soon(engine.start)
      case "room": {
        const { memoryMb } = resource.spec.resources
        const room = runs.room(ref, memoryMb, mostMemoryMb)
        if (yield* retryable(externalCall("executions.room", "write")(room))) return
        return yield* new Retryable({
          message: `Executions may have ${mostMemoryMb} MB of this host, and others have too much of it for ${memoryMb} MB more`,
          reason: "WaitingForRoom",
          againAfterMs: 3_000
        })
      }
      case "pull":
        if (resource.spec.deployment !== undefined)
          return yield* useDeployment(resource, run, resource.spec.deployment.uid)
        return yield* externalCall(
          "executions.pull",
          "write"
        )(pulls.start({ orgId, uid }, yield* pullRequest(resource)))
      case "turn":
        return yield* write("turn", runs.turn(ref, step.at))
      case "pulled":
        return yield* write("pulled", runs.pulled(ref, step.image, step.at))
      case "make": {
        if (!run.containerMade) yield* write("making", runs.making(ref))
        const made = yield* Effect.result(engine.create(yield* planOf(resource, run)))
        if (made._tag === "Success") return
        // Engines differ in how they say that they have no such image.
        const images = yield* Effect.option(engine.images)
        const id = (run.imageId ?? "").replace(/^sha256:/, "")
        // That of a deployment may have been built here: it cannot be had again.
        if (images._tag === "None" || images.value.has(id) || resource.spec.deployment !== undefined)
          return yield* unmade(resource, run, made.failure)
        // Somebody removed it since it was fetched.
        yield* write("imageGone", runs.imageGone(ref))
        return yield* pulls.stop(uid)
      }
      case "start": {
        const services = servicesOf(resource)
        const started = yield* Effect.result(engine.run(name, { runtime: runtimeOf(resource), services }))
        if (started._tag === "Success") return
        return started.failure._tag === "ContainerError"
          ? yield* unmade(resource, run, started.failure)
          : yield* started.failure
      }
      case "running":
        yield* write("running", runs.running(ref, step.startedAt))
        yield* pulls.stop(uid)
        return yield* followers.start(ref, name)
      case "follow":
        return yield* followers.start(ref, name)
      case "stop":
        return yield* write("stopping", runs.stopping(ref, step.reason, step.at))
      case "tell":
        yield* soon(engine.signal(name, "SIGTERM"))
        return yield* write("stopSent", runs.stopSent(ref))
      case "kill":
        return yield* soon(engine.signal(name, "SIGKILL"))
      case "lost":
        return yield* write("lost", runs.lost(ref, step.since))
      case "end":
        return yield* end(resource, step.ending)
      case "giveUpLogs":
        yield* followers.stop(uid)
        return yield* write("giveUpLogs", runs.logsGivenUp(ref))
      case "cleanUp":
        return yield* cleanUp(resource, run)
    }
  })

  const useDeployment = Effect.fnUntraced(function* (
    resource: ExecutionResource,
    { startedAt }: Run,
    deployment: string
  ) {
    const { orgId, uid, fence } = resource
    const found = Option.getOrUndefined(yield* retryable(deployments.find({ orgId, uid: deployment })))
    const now = new Date(yield* Clock.currentTimeMillis)
    if (found === undefined || found.imageId === null || found.imageGone)
      return yield* end(resource, {
        status: "failed",
        errorCode: "image_not_found",
        error: `The image of the deployment ${deployment} is kept no more`,
        exitCode: null,
        startedAt,
        finishedAt: now
      })
    const image = { id: found.imageId, digest: found.imageDigest }
    yield* write("pulled", runs.pulled({ orgId, uid, fence }, image, now))
  })

  const end = Effect.fnUntraced(function* (resource: ExecutionResource, ending: Ending) {
    // First, and as often as need be: once it has ended nobody comes back to it for this.
    yield* settle(resource, ending)
    yield* write("end", runs.end(resource, ending))
    yield* pulls.stop(resource.uid)
  })

  /** The engine refuses what was asked for: waiting for it to answer otherwise would only take time. */
  const unmade = Effect.fnUntraced(function* (
    resource: ExecutionResource,
    run: Run,
    error: { readonly message: string; readonly reason: string }
  ) {
    if (error.reason === "Unreachable" || error.reason === "HostDependencyMissing")
      return yield* soon(Effect.fail(error))
    yield* end(resource, {
      status: "failed",
      errorCode: "start_failed",
      error: error.message,
      exitCode: null,
      startedAt: run.startedAt,
      finishedAt: new Date(yield* Clock.currentTimeMillis)
    })
  })

  const cleanUp = Effect.fnUntraced(function* (resource: ExecutionResource, run: Run) {
    const { orgId, uid, fence } = resource
    const ref = { orgId, uid, fence }
    if (run.containerMade) {
      const removed = yield* Effect.result(engine.remove(installation.nameOf(uid)))
      if (removed._tag === "Failure") {
        const tries = run.cleanupTries + 1
        const status = tries >= options.cleanupTries ? "attention_required" : "pending"
        yield* write("cleanup", runs.cleanup(ref, status, tries))
        return yield* new Retryable({
          message: removed.failure.message,
          reason: status === "pending" ? "CleaningUp" : "CleanupFailing"
        })
      }
    }
    if (!run.logComplete) yield* write("giveUpLogs", runs.logsGivenUp(ref))
    yield* write("cleanup", runs.cleanup(ref, "confirmed", run.cleanupTries))
  })

  return { take, settle }
})
