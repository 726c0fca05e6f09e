/**
 * An execution is a container that runs once. What this keeps true: it goes from state to state by the rules of
 * `execution-steps.ts`, every state but the last has a deadline, what it reserved of the budget is settled when it has
 * ended, and nothing is left of its container.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Execution, type ExecutionSpec, type ExecutionStatus } from "#schemas/execution.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Catalog, executionMicroUsd } from "#src/catalog/Catalog.ts"
import { AppConfig } from "#src/config.ts"
import { outside } from "#src/engine/outside.ts"
import { absent, type Resource, Retryable, register, Terminal } from "#src/engine/Reconciler.ts"
import { Followers } from "#src/executions/Followers.ts"
import { Installation } from "#src/executions/Installation.ts"
import { parseImage } from "#src/executions/image.ts"
import { ExecutionOptions } from "#src/executions/options.ts"
import { Pulls } from "#src/executions/Pulls.ts"
import { type Ending, type Run, Runs } from "#src/executions/Runs.ts"
import { ContainerEngine } from "#src/infra/ContainerEngine.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { decide, needsContainer, type Seen, type Step } from "./execution-steps.ts"

type ExecutionResource = Resource<ExecutionSpec, ExecutionStatus>

const Env = Schema.fromJsonString(Schema.Record(Schema.String, Schema.String))
const Credentials = Schema.fromJsonString(
  Schema.Struct({ registry: Schema.String, username: Schema.String, password: Schema.String })
)

export const layer = register(
  Execution,
  { driftInterval: "6 hours", concurrency: 64 },
  Effect.gen(function* () {
    const engine = yield* ContainerEngine
    const runs = yield* Runs
    const pulls = yield* Pulls
    const followers = yield* Followers
    const secrets = yield* Secrets
    const budgets = yield* Budgets
    const catalog = yield* Catalog
    const installation = yield* Installation
    const options = yield* ExecutionOptions
    const { sandboxRuntime } = yield* AppConfig

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

    const survey = Effect.fnUntraced(function* ({ orgId, uid, spec }: ExecutionResource) {
      const run = Option.getOrUndefined(yield* retryable(runs.find({ orgId, uid })))
      const seen = yield* look(uid, run)
      const now = yield* Clock.currentTimeMillis
      const followed =
        followers.follows(uid) ||
        (run?.logOwnerAt != null && now - run.logOwnerAt.getTime() < options.followerMs) ||
        run?.logComplete === true
      return { run, step: decide({ now, spec, run, seen, pull: pulls.look(uid), followed, options }) }
    })

    /** False: somebody else was here since, and this reconcile is to do nothing more. */
    const fenced = <E extends { readonly message: string }>(change: Effect.Effect<boolean, E>) =>
      Effect.flatMap(retryable(change), (done) =>
        done
          ? Effect.void
          : Effect.fail(new Retryable({ message: "A later reconcile works on the execution" }))
      )
    const write = <E extends { readonly message: string }>(name: string, change: Effect.Effect<boolean, E>) =>
      fenced(outside(`executions.${name}`, "write")(change))

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

    const pullRequest = Effect.fnUntraced(function* ({ orgId, uid, spec }: ExecutionResource) {
      const sealed = yield* retryable(secrets.read({ orgId, uid, field: "imagePullCredentials" }))
      const credentials = Option.isNone(sealed)
        ? undefined
        : yield* Effect.mapError(
            Schema.decodeUnknownEffect(Credentials)(Redacted.value(sealed.value)),
            () => new Terminal({ message: "The stored credentials of the registry cannot be read" })
          )
      return {
        reference: parseImage(spec.image)?.canonical ?? spec.image,
        credentials:
          credentials === undefined
            ? undefined
            : { ...credentials, password: Redacted.make(credentials.password) }
      }
    })

    const planOf = Effect.fnUntraced(function* ({ orgId, uid, spec, fence }: ExecutionResource, run: Run) {
      const sealed = yield* retryable(secrets.read({ orgId, uid, field: "env" }))
      const env = Option.isNone(sealed)
        ? {}
        : yield* Effect.mapError(
            Schema.decodeUnknownEffect(Env)(Redacted.value(sealed.value)),
            () => new Terminal({ message: "The stored variables cannot be read" })
          )
      const { cpus, cpuKind, memoryMb } = spec.resources
      return {
        name: installation.nameOf(uid),
        labels: { ...installation.labels, "svc.execution": uid, "svc.fence": String(fence) },
        image: run.imageId ?? "",
        command: spec.command,
        env: Redacted.make(env),
        cpus,
        cpuShares: Math.max(2, Math.round(cpus * (cpuKind === "performance" ? 1024 : 256))),
        memoryMb,
        runtime: spec.runtime.nestedContainers ? sandboxRuntime : undefined
      }
    })

    const take = Effect.fnUntraced(function* (resource: ExecutionResource, run: Run | undefined, step: Step) {
      const { orgId, uid, fence } = resource
      const ref = { orgId, uid, fence }
      const name = installation.nameOf(uid)
      if (step.do === "blocked")
        return yield* new Retryable({
          message: step.message,
          reason: step.missing ? "HostDependencyMissing" : "EngineUnreachable"
        })
      if (step.do === "begin" || run === undefined)
        return yield* write("begin", runs.begin({ ...ref, projectId: resource.projectId ?? "" }))
      yield* fenced(runs.claim(ref))
      switch (step.do) {
        case "wait":
        case "nothing":
          return
        case "startEngine":
          return yield* retryable(engine.start)
        case "pull":
          return yield* outside("executions.pull", "write")(pulls.start(uid, yield* pullRequest(resource)))
        case "pulled":
          return yield* write("pulled", runs.pulled(ref, step.image))
        case "make": {
          if (!run.containerMade) yield* write("making", runs.making(ref))
          const made = yield* Effect.result(engine.create(yield* planOf(resource, run)))
          return made._tag === "Failure" ? yield* unmade(resource, run, made.failure) : undefined
        }
        case "start": {
          const started = yield* Effect.result(engine.run(name))
          return started._tag === "Failure" ? yield* unmade(resource, run, started.failure) : undefined
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
          yield* retryable(engine.signal(name, "SIGTERM"))
          return yield* write("stopSent", runs.stopSent(ref))
        case "kill":
          return yield* retryable(engine.signal(name, "SIGKILL"))
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
        return yield* new Retryable({ message: error.message, reason: "EngineUnreachable" })
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
          yield* write(
            "cleanup",
            runs.cleanup(ref, tries >= options.cleanupTries ? "attention_required" : "pending", tries)
          )
          return yield* new Retryable({ message: removed.failure.message, reason: "CleaningUp" })
        }
      }
      if (!run.logComplete) yield* write("giveUpLogs", runs.logsGivenUp(ref))
      yield* write("cleanup", runs.cleanup(ref, "confirmed", run.cleanupTries))
    })

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
        if (step.do === "nothing") return { ...present, ready: true, differences: [] }
        if (step.do === "wait") {
          const { reason, message, forMs } = step
          return { ...present, ready: false, differences: [], reason, message, pollAfter: forMs }
        }
        return {
          ...present,
          ready: false,
          differences: [{ field: "/status", message: words[step.do] }],
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

const words: Readonly<Record<Exclude<Step["do"], "wait" | "nothing">, string>> = {
  begin: "it is to begin",
  blocked: "there is no container engine that answers",
  startEngine: "the container engine is to be started",
  pull: "its image is to be fetched",
  pulled: "its image is there",
  make: "its container is to be made",
  start: "its container is to be started",
  running: "its command has begun",
  follow: "what it prints is to be kept",
  stop: "its command is to end",
  tell: "its command is to be told to end",
  kill: "its command is to be ended by force",
  lost: "whether the container engine answers has changed",
  end: "it has come to its end",
  giveUpLogs: "what it printed cannot be read any more",
  cleanUp: "its container is to be removed"
}

const reasonOf = ({ status, imageId, finishedAt }: Run) => ({
  reason:
    finishedAt !== null
      ? "CleaningUp"
      : status === "running"
        ? "ExecutionRunning"
        : imageId === null
          ? "ImagePulling"
          : "ContainerStarting"
})

const statusOf = (run: Run): ExecutionStatus => ({
  state: run.status,
  exitCode: run.exitCode,
  errorCode: run.errorCode,
  error: run.error,
  cleanupStatus: run.cleanupStatus,
  imageDigest: run.imageDigest,
  startedAt: run.startedAt?.toISOString() ?? null,
  finishedAt: run.finishedAt?.toISOString() ?? null
})

const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, (error) => new Retryable({ message: error.message, cause: error }))
