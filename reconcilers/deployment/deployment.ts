/**
 * A deployment brings what it is made of onto the host and has the app run it. What this keeps true: it goes from state to
 * state by the rules of `state-machine.ts`, every state but the last has a deadline, and an older one never replaces what
 * was chosen later.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { App, AppSpec, appName } from "#schemas/app.ts"
import { Deployment, type DeploymentSpec, type DeploymentStatus } from "#schemas/deployment.ts"
import { AppLogs } from "#src/apps/AppLogs.ts"
import { Apps } from "#src/apps/Apps.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import { makePreviewTrust } from "#src/apps/preview-trust.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { DeploymentBuilds } from "#src/deployments/DeploymentBuilds.ts"
import { DeploymentPulls } from "#src/deployments/DeploymentPulls.ts"
import { type DeploymentRow, Deployments } from "#src/deployments/Deployments.ts"
import { DeploymentOptions } from "#src/deployments/options.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register, Terminal } from "#src/engine/Reconciler.ts"
import { parseImage } from "#src/executions/image.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { type AppSight, decide, type End, type Step } from "./state-machine.ts"

type DeploymentResource = Resource<DeploymentSpec, DeploymentStatus>

const Credentials = Schema.fromJsonString(
  Schema.Struct({ registry: Schema.String, username: Schema.String, password: Schema.String })
)
const decodeApp = Schema.decodeUnknownEffect(AppSpec)

const actor: Actor = {
  principal: "system",
  credential: "none",
  operation: "deployments.activate",
  requestId: "deployments.activate",
  address: null,
  outcome: 200
}

const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, (error) => new Retryable({ message: error.message, cause: error }))
const write = <E extends { readonly message: string }>(name: string, change: Effect.Effect<boolean, E>) =>
  Effect.flatMap(retryable(externalCall(`deployments.${name}`, "write")(change)), (done) =>
    done ? Effect.void : Effect.fail(new Retryable({ message: "A later reconcile works on the deployment" }))
  )

export const layer = register(
  Deployment,
  { driftInterval: "6 hours", concurrency: 64 },
  Effect.gen(function* () {
    const deployments = yield* Deployments
    const pulls = yield* DeploymentPulls
    const builds = yield* DeploymentBuilds
    const commits = yield* CommitSources
    const trust = yield* makePreviewTrust
    const variables = yield* AppVariables
    const apps = yield* Apps
    const appLogs = yield* AppLogs
    const resources = yield* Resources
    const secrets = yield* Secrets
    const engine = yield* ContainerEngine
    const options = yield* DeploymentOptions

    const findApp = ({ orgId, projectId, environment }: DeploymentResource) =>
      retryable(
        Effect.map(
          resources.find(orgId, App.name, projectId, environment, appName),
          Option.filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
        )
      )

    const sight = Effect.fnUntraced(function* (resource: DeploymentResource) {
      const found = Option.getOrUndefined(yield* findApp(resource))
      if (found === undefined) return undefined
      const spec = yield* retryable(decodeApp(found.spec))
      const state = Option.getOrUndefined(yield* retryable(apps.find(found)))
      const own = state?.instances.filter(({ deployment }) => deployment === resource.uid) ?? []
      const app: AppSight = {
        chosen: spec.deployment,
        chosenAt: spec.chosenAt === undefined ? undefined : new Date(spec.chosenAt),
        serving: state?.row.servingDeployment ?? null,
        rejected: state?.row.rejectedDeployment ?? null,
        rejectedError: state?.row.rejectedError ?? null,
        unsettled: own.filter(({ state, logComplete }) => state !== "ended" || !logComplete).length
      }
      return app
    })

    const silence = Effect.gen(function* () {
      const state = yield* engine.state
      if (state._tag === "Ready") return undefined
      return { startable: state._tag === "Down" && state.startable, message: state.message }
    })

    const survey = Effect.fnUntraced(function* (resource: DeploymentResource) {
      const { spec, uid } = resource
      const row = Option.getOrUndefined(yield* retryable(deployments.find(resource)))
      const isOver = row !== undefined && ["ready", "failed", "cancelled", "superseded"].includes(row.state)
      const [app, silent] = isOver ? [] : [yield* sight(resource), yield* silence]
      return {
        row,
        app,
        step: decide({ spec, row, pull: pulls.look(uid), build: builds.look(uid), app, silent, options })
      }
    })

    const pullRequest = Effect.fnUntraced(function* ({ orgId, uid }: DeploymentResource, image: string) {
      const sealed = yield* retryable(secrets.read({ orgId, uid, field: "imagePullCredentials" }))
      const credentials = Option.isNone(sealed)
        ? undefined
        : yield* Effect.mapError(
            Schema.decodeUnknownEffect(Credentials)(Redacted.value(sealed.value)),
            () => new Terminal({ message: "The stored credentials of the registry cannot be read" })
          )
      return {
        reference: parseImage(image)?.canonical ?? image,
        credentials:
          credentials === undefined
            ? undefined
            : { ...credentials, password: Redacted.make(credentials.password) }
      }
    })

    /** The app runs it from now on, unless something else was chosen at this moment. */
    const choose = Effect.fnUntraced(function* (resource: DeploymentResource, row: DeploymentRow) {
      const found = Option.getOrUndefined(yield* findApp(resource))
      if (found === undefined)
        return yield* new Retryable({ message: "The environment has no app at the moment" })
      const spec = yield* retryable(decodeApp(found.spec))
      const chosenAt = row.createdAt.toISOString()
      if (spec.chosenAt !== undefined && spec.chosenAt >= chosenAt) return
      const change = {
        action: "update",
        uid: found.uid,
        expectedGeneration: found.generation,
        spec: { ...spec, deployment: resource.uid, chosenAt }
      } as const
      yield* retryable(
        externalCall("deployments.choose", "write")(resources.write(resource.orgId, [change], actor))
      )
    })

    /** The app goes back to what takes the requests. */
    const unchoose = Effect.fnUntraced(function* (resource: DeploymentResource) {
      const found = Option.getOrUndefined(yield* findApp(resource))
      if (found === undefined) return
      const { deployment, ...spec } = yield* retryable(decodeApp(found.spec))
      if (deployment !== resource.uid) return
      const state = Option.getOrUndefined(yield* retryable(apps.find(found)))
      const serving = state?.row.servingDeployment ?? null
      const change = {
        action: "update",
        uid: found.uid,
        expectedGeneration: found.generation,
        spec: serving === null ? spec : { ...spec, deployment: serving }
      } as const
      yield* retryable(
        externalCall("deployments.unchoose", "write")(resources.write(resource.orgId, [change], actor))
      )
    })

    /** The last lines of the instance of it that was made last. */
    const lastWords = Effect.fnUntraced(function* ({
      orgId,
      projectId,
      environment,
      uid
    }: DeploymentResource) {
      const found = yield* retryable(resources.find(orgId, App.name, projectId, environment, appName))
      if (Option.isNone(found)) return []
      const instances = yield* retryable(apps.instances(orgId, found.value.uid, 20))
      const last = instances.find(({ deployment }) => deployment === uid)
      if (last === undefined) return []
      const pieces = yield* retryable(appLogs.tail({ orgId, uid: last.uid }, options.lastLines))
      let left = options.lastBytes
      return pieces
        .toReversed()
        .flatMap(({ stream, at, content }) => {
          left -= content.length
          return left < 0 ? [] : [{ stream, at, content }]
        })
        .toReversed()
    })

    const end = Effect.fnUntraced(function* (resource: DeploymentResource, { state, errorCode, error }: End) {
      const { orgId, uid, fence, projectId } = resource
      yield* pulls.stop(uid)
      if (resource.spec.source.kind !== "image") yield* builds.discard(uid)
      const printed = errorCode === "never_healthy" ? yield* lastWords(resource) : []
      yield* write(
        "end",
        deployments.end({ orgId, uid, fence, projectId }, { state, errorCode, error, printed })
      )
    })

    const take = Effect.fnUntraced(function* (
      resource: DeploymentResource,
      row: DeploymentRow | undefined,
      step: Step
    ) {
      const { orgId, uid, fence, spec } = resource
      const ref = { orgId, uid, fence }
      if (step.do === "begin" || row === undefined) return yield* write("begin", deployments.begin(ref))
      yield* write("claim", deployments.claim(ref))
      const { source } = spec
      const image = inWords(source)
      switch (step.do) {
        case "wait":
        case "nothing":
          return
        case "startEngine":
          return yield* retryable(engine.start)
        case "fetch":
          return yield* write("fetch", deployments.moveTo(ref, ["queued"], "fetching", `Fetching ${image}`))
        case "pull":
          return yield* externalCall(
            "deployments.pull",
            "write"
          )(pulls.start({ orgId, uid }, yield* pullRequest(resource, image)))
        case "fetched": {
          const line = `Fetched ${image}${step.image.digest === null ? "" : ` (${step.image.digest})`}; starting instances`
          yield* write("fetched", deployments.moveTo(ref, ["fetching"], "starting", line, step.image))
          return yield* pulls.stop(uid)
        }
        case "toBuild":
          return yield* write("toBuild", deployments.moveTo(ref, ["queued"], "building", `Building ${image}`))
        case "build":
          if (source.kind === "image") return
          return yield* externalCall(
            "deployments.build",
            "write"
          )(
            builds.start({
              orgId,
              packagesOf: yield* retryable(
                trust.packagesOf(orgId, resource.projectId ?? "", resource.parentUid)
              ),
              uid,
              variables: yield* retryable(
                variables.forBuild({
                  orgId,
                  projectId: resource.projectId ?? "",
                  environment: resource.environment ?? "",
                  deployment: uid
                })
              ),
              source: source.kind === "git" ? commits.bring(orgId, source) : Effect.succeed(source)
            })
          )
        case "built":
          yield* write(
            "built",
            deployments.moveTo(ref, ["building"], "starting", "Built; starting instances", step.image)
          )
          return yield* builds.stop(uid)
        case "choose":
          return yield* choose(resource, row)
        case "unchoose":
          return yield* unchoose(resource)
        case "ready":
          return yield* write(
            "ready",
            deployments.moveTo(ref, ["starting"], "ready", "Its instances are healthy and take the requests")
          )
        case "end":
          return yield* end(resource, step.end)
      }
    })

    return {
      observe: Effect.fnUntraced(function* (resource) {
        if (resource.deleting) {
          const left = yield* retryable(deployments.find(resource))
          return Option.isNone(left)
            ? absent
            : { _tag: "Present" as const, status: statusOf(left.value), ready: false, differences: [] }
        }
        const { row, step } = yield* survey(resource)
        if (row === undefined) return absent
        const present = { _tag: "Present" as const, status: statusOf(row) }
        if (step.do === "nothing") return { ...present, ready: true, differences: [], ...noteOf(row) }
        if (step.do === "wait") {
          const { reason, message, forMs } = step
          return { ...present, ready: false, differences: [], reason, message, pollAfter: forMs }
        }
        const differences = [{ field: "/status", message: messages[step.do] }]
        return { ...present, ready: false, differences, reason: reasons[row.state] ?? "DeploymentQueued" }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { row, step } = yield* survey(resource)
        yield* take(resource, row, step)
      }),
      remove: Effect.fnUntraced(function* (resource) {
        const { orgId, uid, fence, spec } = resource
        yield* pulls.stop(uid)
        if (spec.source.kind !== "image") yield* builds.discard(uid)
        const found = yield* retryable(deployments.find(resource))
        if (Option.isNone(found)) return
        yield* write("forget", deployments.forget({ orgId, uid, fence }))
      })
    }
  })
)

const inWords = (source: DeploymentSpec["source"]): string => {
  switch (source.kind) {
    case "image":
      return source.image
    case "upload":
      return "the uploaded source"
    case "git":
      return `the commit ${source.commit} (${source.ref}) of ${source.url}`
  }
}

const reasons: Readonly<Record<string, string>> = {
  queued: "DeploymentQueued",
  fetching: "ImagePulling",
  building: "Building",
  starting: "InstancesStarting"
}

const messages: Readonly<Record<Exclude<Step["do"], "wait" | "nothing">, string>> = {
  begin: "it is to begin",
  startEngine: "the container engine is to be started",
  fetch: "its turn has come",
  pull: "its image is to be fetched",
  fetched: "its image is there",
  toBuild: "its turn has come",
  build: "its image is to be built",
  built: "its image is built",
  choose: "the app is to run it",
  unchoose: "the app is to go back to what answers",
  ready: "its instances take the requests",
  end: "it has come to its end"
}

const statusOf = ({ state, errorCode, error, imageDigest }: DeploymentRow): DeploymentStatus => ({
  state,
  errorCode,
  error,
  imageDigest
})

const noteReasons: Readonly<Record<string, string>> = {
  failed: "DeploymentFailed",
  cancelled: "DeploymentCancelled",
  superseded: "DeploymentSuperseded"
}

/** Nothing is left to do for one that has ended, so it is ready; that it failed is told all the same. */
const noteOf = ({ state, error }: DeploymentRow) => {
  const reason = noteReasons[state]
  return reason === undefined ? {} : { note: { reason, message: error ?? `It is ${state}` } }
}
