/** Handlers of `deployments.*`. */
import { IncomingMessage } from "node:http"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { AppSpec } from "#schemas/app.ts"
import { DeploymentSpec } from "#schemas/deployment.ts"
import { ProjectSpec } from "#schemas/project.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { Regions } from "#src/api/Regions.ts"
import { targetEnvironment, targetProject, targetRecord } from "#src/api/target.ts"
import { viewAll } from "#src/api/views.ts"
import { amend, createdBefore, stored } from "#src/api/writing.ts"
import type { ArchiveRefused } from "#src/builds/archive.ts"
import { chooseBase } from "#src/builds/base-images.ts"
import type { PlanRefused } from "#src/builds/plan-refused.ts"
import { settings as buildSettings } from "#src/builds/settings.ts"
import { type Progress, type UploadFailed, Uploads, whole } from "#src/builds/Uploads.ts"
import { makeLogHandler } from "#src/container-logs/log-handler.ts"
import { isListed, parseImage, registryOf } from "#src/executions/image.ts"
import { settings } from "#src/executions/settings.ts"
import { reservedAt } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import { DeploymentList, type DeploymentRequest, DeploymentView, type GitRequest, UploadView } from "./api.ts"
import { CommitSources } from "./CommitSources.ts"
import { type DeploymentRecord, Deployments } from "./Deployments.ts"
import { ensureApp, findApp, makeDeployment } from "./make-deployment.ts"

const storedSpec = Schema.decodeUnknownSync(DeploymentSpec)
const decodeApp = Schema.decodeUnknownEffect(AppSpec)
const decodeProject = Schema.decodeUnknownEffect(ProjectSpec)

export const layer = HttpApiBuilder.group(
  Api,
  "deployments",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const deployments = yield* Deployments
    const regions = yield* Regions
    const uploads = yield* Uploads
    const commits = yield* CommitSources
    const { registries } = yield* settings
    const { buildImages } = yield* buildSettings
    const showLog = yield* makeLogHandler

    const read = Effect.fnUntraced(function* (orgId: string, uid: string) {
      const found = yield* Effect.mapError(deployments.get(orgId, uid), fromStore)
      return Option.isSome(found) ? deploymentView(found.value) : yield* notFound("deployment")
    })

    const faultsOf = (request: DeploymentRequest) => {
      const { region, upload, git, imagePullCredentials: credentials } = request
      const sources = [request.image, upload, git].filter((source) => source !== undefined)
      const image = request.image === undefined ? undefined : parseImage(request.image)
      const registry = credentials === undefined ? undefined : registryOf(credentials.registry)
      const pointer = "/imagePullCredentials/registry"
      return [
        ...(sources.length === 1 ? [] : [{ pointer: "", message: "must have one of image, upload and git" }]),
        ...(request.image === undefined && credentials !== undefined
          ? [{ pointer: "/imagePullCredentials", message: "are for an image, not for source that is built" }]
          : []),
        ...(request.image !== undefined && image === undefined
          ? [{ pointer: "/image", message: "must be the name of an image, such as name@sha256:..." }]
          : []),
        ...(request.command?.[0] === "" ? [{ pointer: "/command/0", message: "must name a program" }] : []),
        ...(region !== undefined && !regions.some((id) => id === region)
          ? [{ pointer: "/region", message: `must be one of: ${regions.join(", ")}` }]
          : []),
        ...(credentials === undefined
          ? []
          : registry === undefined
            ? [{ pointer, message: "must be the host of a registry" }]
            : !isListed(registry, registries)
              ? [{ pointer, message: `is none that takes credentials here: ${registries.join(", ")}` }]
              : image !== undefined && image.registry !== registry
                ? [{ pointer, message: `is not where the image comes from, which is ${image.registry}` }]
                : [])
      ]
    }

    /** Of the project's repository, unless another is named. */
    const commitOf = Effect.fnUntraced(function* ({ repo, ref }: GitRequest) {
      if (buildImages.length === 0) return yield* nothingBuilt
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetEnvironment
      const project = yield* Effect.mapError(resources.get(orgId, projectId), fromStore)
      const known = Option.isSome(project)
        ? (yield* Effect.orDie(decodeProject(project.value.spec))).git
        : undefined
      const named = repo ?? known?.repo
      if (named === undefined)
        return yield* invalid([
          { pointer: "/git/repo", message: "must name a repository: the project has none (git.repo)" }
        ])
      // What the project says of its own repository is nothing of another one.
      const wanted = ref ?? (named === known?.repo ? known.ref : undefined)
      return yield* Effect.mapError(commits.resolve(orgId, { repo: named, ref: wanted }), (error) =>
        error._tag === "StoreUnavailable"
          ? fromStore(error)
          : error.code === "unavailable"
            ? problem(409, "git_unavailable", error.message)
            : invalid([
                { pointer: error.code === "ref_not_found" ? "/git/ref" : "/git", message: error.message }
              ])
      )
    })

    /** What it is made of, as it is kept. */
    const sourceOf = Effect.fnUntraced(function* ({ image, upload, git }: DeploymentRequest) {
      if (git !== undefined) return yield* commitOf(git)
      if (upload === undefined) return { kind: "image" as const, image: image ?? "" }
      if (buildImages.length === 0) return yield* nothingBuilt
      const { orgId } = yield* RequestScope
      const found = yield* uploads.find({ orgId, digest: upload })
      if (Option.isNone(found))
        return yield* invalid([
          { pointer: "/upload", message: "is not here, or is kept no more; upload the source again" }
        ])
      const { plan } = found.value
      const base = plan.kind === "dockerfile" ? undefined : chooseBase(buildImages, plan.runtime)
      if (base !== undefined && Result.isFailure(base))
        return yield* invalid([{ pointer: "/upload", message: base.failure }])
      return { kind: "upload" as const, digest: upload, plan }
    })

    interface Place {
      readonly orgId: string
      readonly projectId: string
      readonly environment: string
    }
    const nothingBuilt = problem(
      409,
      "builds_not_configured",
      "Nothing is built here: SVC_BUILD_IMAGE is set to nothing; deploy an image instead"
    )

    const gone = problem(
      409,
      "image_gone",
      "The image of this deployment is kept no more; deploy it again from its registry"
    )

    /** What an earlier try of this request chose, which was not answered. */
    const chosenBefore = Effect.fnUntraced(function* (place: Place) {
      const { reservation } = yield* RequestScope
      if (!reservation.again) return undefined
      const app = yield* Effect.mapError(findApp(resources, place), fromStore)
      if (Option.isNone(app)) return undefined
      const { deployment, chosenAt = "" } = yield* Effect.orDie(decodeApp(app.value.spec))
      return chosenAt >= reservedAt(reservation).toISOString() ? deployment : undefined
    })

    /** The app runs this deployment from now on. Nothing is fetched; its instances are started anew. */
    const choose = Effect.fnUntraced(function* (place: Place, uid: string) {
      const chosenAt = (yield* Effect.mapError(deployments.now, fromStore)).toISOString()
      const app = yield* Effect.mapError(findApp(resources, place), fromStore)
      if (Option.isNone(app)) return yield* notFound("app in this environment")
      if ((yield* chosenBefore(place)) !== undefined) return
      yield* amend(
        app.value,
        Effect.fnUntraced(function* (current) {
          const spec = yield* Effect.orDie(decodeApp(current.spec))
          return { spec: { ...spec, deployment: uid, chosenAt, restarts: spec.restarts + 1 } }
        })
      )
    })

    return handlers.handleAll(
      handlersOf(Api.groups.deployments)({
        list: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { projectId, environment } = yield* targetProject
          const limit = query.limit ?? defaultPageSize
          const found = yield* Effect.mapError(
            deployments.list(orgId, { projectId, environment }, limit),
            fromStore
          )
          return answer(DeploymentList, yield* viewAll(found, deploymentView))
        }),
        create: billedLate(
          Effect.fnUntraced(function* ({ payload }) {
            const { orgId, caller, reservation } = yield* RequestScope
            const { projectId, environment, environmentUid } = yield* targetEnvironment
            const { uid } = reservation
            if ((yield* createdBefore) !== undefined) return yield* read(orgId, uid)
            const faults = faultsOf(payload)
            if (faults.length > 0) return yield* invalid(faults)
            yield* billing
            const source = yield* sourceOf(payload)
            const place = { orgId, projectId, environment, environmentUid }
            const app = yield* stored(ensureApp(resources, place, payload.region ?? regions[0], caller.actor))
            if (payload.region !== undefined && payload.region !== app.region)
              return yield* invalid([
                { pointer: "/region", message: `must be where the app is, which is ${app.region}` }
              ])
            const { command, message, imagePullCredentials } = payload
            const spec: DeploymentSpec = {
              region: app.region,
              source,
              ...(command === undefined ? {} : { command }),
              ...(message === undefined ? {} : { message }),
              cancelRequested: false
            }
            const secrets =
              imagePullCredentials === undefined
                ? {}
                : { imagePullCredentials: Redacted.make(JSON.stringify(imagePullCredentials)) }
            yield* stored(
              makeDeployment(resources, place, { uid, spec, secrets }, { ...caller.actor, outcome: 202 })
            )
            return yield* read(orgId, uid)
          })
        ),
        upload: Effect.fnUntraced(function* ({ params: { digest }, query: { offset = 0, size }, request }) {
          const { orgId } = yield* RequestScope
          if (buildImages.length === 0) return yield* nothingBuilt
          // What comes from within this process has no body of its own.
          const { source } = request
          if (!(source instanceof IncomingMessage))
            return yield* problem(415, "unsupported_media_type", "Send the source as application/x-tar")
          const ref = { orgId, digest }
          return yield* showUpload(
            digest,
            size === undefined
              ? Effect.map(uploads.store(ref, source), whole)
              : uploads.append(ref, { offset, size }, source)
          )
        }),
        comparePieces: Effect.fnUntraced(function* ({ params: { digest }, payload: { pieces } }) {
          const { orgId } = yield* RequestScope
          if (buildImages.length === 0) return yield* nothingBuilt
          return yield* showUpload(digest, uploads.compare({ orgId, digest }, pieces))
        }),
        get: Effect.fnUntraced(function* () {
          const { orgId, uid } = yield* targetRecord
          return answer(DeploymentView, yield* read(orgId, uid))
        }),
        logs: Effect.fnUntraced(function* (request) {
          const { orgId, uid } = yield* targetRecord
          return yield* showLog(request, { orgId, uid }, deployments.log, read(orgId, uid))
        }),
        cancel: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          const { orgId, uid } = record
          const { again } = (yield* RequestScope).reservation
          if (again && storedSpec(record.spec).cancelRequested) return yield* read(orgId, uid)
          const { finishedAt, state } = yield* read(orgId, uid)
          if (finishedAt !== null)
            return yield* problem(409, "deployment_ended", `The deployment has ended already: ${state}`)
          yield* amend(record, (current) =>
            Effect.succeed({ spec: { ...storedSpec(current.spec), cancelRequested: true } })
          )
          return yield* read(orgId, uid)
        }),
        promote: Effect.fnUntraced(function* () {
          const { orgId, uid, projectId, environment } = yield* targetRecord
          const deployment = yield* read(orgId, uid)
          if (deployment.state !== "ready")
            return yield* problem(
              409,
              "not_ready",
              `Only a deployment that was ready can be chosen; this one is ${deployment.state}`
            )
          if (!deployment.imageKept) return yield* gone
          yield* choose({ orgId, projectId: projectId ?? "", environment: environment ?? "" }, uid)
          return yield* read(orgId, uid)
        }),
        rollback: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { projectId, environment, environmentUid } = yield* targetEnvironment
          const before = yield* chosenBefore({ orgId, projectId, environment })
          if (before !== undefined) return yield* read(orgId, before)
          const uid = yield* Effect.mapError(deployments.before(orgId, environmentUid), fromStore)
          if (uid === undefined)
            return yield* problem(
              409,
              "nothing_before",
              "There is no ready deployment before the one that answers, or its image is kept no more"
            )
          yield* choose({ orgId, projectId, environment }, uid)
          return yield* read(orgId, uid)
        })
      })
    )
  })
)

const showUpload = (
  digest: string,
  progress: Effect.Effect<Progress, ArchiveRefused | PlanRefused | UploadFailed>
) =>
  progress.pipe(
    Effect.mapError((error) =>
      error._tag === "UploadFailed"
        ? problem(503, error.reason === "Full" ? "uploads_full" : "upload_failed", error.message)
        : problem(error.code === "archive_too_large" ? 413 : 422, error.code, error.message)
    ),
    Effect.map(({ upload, ...rest }) =>
      answer(UploadView, {
        digest,
        ...rest,
        entries: upload?.entries ?? null,
        plan: upload?.plan ?? null
      })
    )
  )

const deploymentView = (record: DeploymentRecord) => {
  const { spec, imageGone, createdAt, readyAt, finishedAt, ...rest } = record
  const { source, command, message, region } = storedSpec(spec)
  return {
    ...rest,
    source,
    command: command ?? null,
    message: message ?? null,
    region,
    imageKept: record.imageDigest !== null && !imageGone,
    createdAt: createdAt.toISOString(),
    readyAt: readyAt?.toISOString() ?? null,
    finishedAt: finishedAt?.toISOString() ?? null
  }
}
