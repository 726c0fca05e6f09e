/** Handlers of `databaseBranches.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { DatabaseSku } from "#schemas/catalog.ts"
import { DatabaseSpec } from "#schemas/database.ts"
import {
  type BranchSource,
  DatabaseBranch,
  DatabaseBranchSpec,
  DatabaseBranchStatus
} from "#schemas/database-branch.ts"
import { looksLikeUid, previewSlug, sharedPreview } from "#schemas/names.ts"
import { isTrusted, Preview } from "#schemas/preview.ts"
import { Project } from "#schemas/project.ts"
import { answer } from "#src/api/answer.ts"
import { caCertificateUrl, passwordField, passwordOf, rotate } from "#src/api/credentials.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { ReconcileNow } from "#src/api/ReconcileNow.ts"
import { Regions } from "#src/api/Regions.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { viewAll } from "#src/api/views.ts"
import { stored } from "#src/api/writing.ts"
import { Repository } from "#src/backups/repository/Repository.ts"
import { AppConfig } from "#src/config.ts"
import { postgresUrl } from "#src/infra/connection-strings.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { BranchList, BranchView } from "./api.ts"
import { Promotions } from "./Promotions.ts"
import { forbiddenInPreview } from "./Sources.ts"
import { branchView, decodeBranch, sourceOf } from "./view.ts"

const decodeSpec = (spec: unknown) => Effect.orDie(Schema.decodeUnknownEffect(DatabaseBranchSpec)(spec))
const decodeStatus = Schema.decodeUnknownEffect(DatabaseBranchStatus)
const decodeDatabase = Schema.decodeUnknownEffect(DatabaseSpec)
const decodeProject = Schema.decodeUnknownEffect(Project.spec)
const decodePreview = Schema.decodeUnknownEffect(Preview.spec)
const isSku = Schema.is(DatabaseSku)

/** The branch in the path, if it is one of the database there. */
const theBranch = (databaseId: string) =>
  Effect.flatMap(targetRecord, (record) =>
    sourceOf(record) === databaseId
      ? Effect.succeed(record)
      : Effect.fail(notFound("branch of this database"))
  )

export const layer = HttpApiBuilder.group(
  Api,
  "databaseBranches",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const promotions = yield* Promotions
    const repository = yield* Repository
    const regions = yield* Regions
    yield* ReconcileNow
    yield* AppConfig

    const read = (uid: string) =>
      Effect.gen(function* () {
        const { orgId } = yield* RequestScope
        const found = yield* Effect.mapError(resources.get(orgId, uid), fromStore)
        return Option.isSome(found) ? found.value : yield* notFound("branch")
      })

    /** Whether a branch in this environment can be made for the preview. */
    const intoPreview = Effect.fnUntraced(function* (
      projectId: string | null,
      previewId: string,
      environment: string
    ) {
      const { orgId } = yield* RequestScope
      const found = looksLikeUid(previewId)
        ? yield* Effect.mapError(resources.get(orgId, previewId), fromStore)
        : Option.none()
      const preview = Option.getOrUndefined(found)
      if (preview?.kind !== Preview.name || preview.projectId !== projectId)
        return yield* notFound("preview in this project")
      if (preview.deletionRequestedAt !== null)
        return yield* problem(409, "being_deleted", "The preview is being closed")
      const spec = yield* Effect.orDie(decodePreview(preview.spec))
      if (!isTrusted(spec))
        return yield* problem(
          422,
          "preview_not_approved",
          "The preview is of a fork, and its commit is not approved: it gets no data"
        )
      const own = previewSlug(spec.pullRequest)
      if (environment !== own && environment !== sharedPreview)
        return yield* invalid([
          { pointer: "/environment", message: `must be ${own} or ${sharedPreview} for this preview` }
        ])
    })

    /** Nothing of it exists yet, so all that is named is looked up before anything is written. */
    const checked = Effect.fnUntraced(function* (
      database: ResourceRecord,
      asked: {
        readonly environment: string
        readonly region: string
        readonly sku: string
        readonly previewId?: string | null
      }
    ) {
      const { orgId } = yield* RequestScope
      const { environment, region, sku, previewId } = asked
      const place = yield* Effect.mapError(
        resources.place(orgId, database.projectId ?? "", environment),
        fromStore
      )
      const environmentUid = Option.getOrUndefined(place)?.environmentUid ?? null
      if (environmentUid === null) return yield* notFound("environment in this project")
      if (!regions.includes(region)) return yield* notFound("region")
      if (!isSku(sku)) return yield* notFound("database size (sku)")
      if (typeof previewId === "string") yield* intoPreview(database.projectId, previewId, environment)
      if (database.deletionRequestedAt !== null)
        return yield* problem(409, "being_deleted", "The database is being deleted")
      const project = yield* Effect.mapError(resources.get(orgId, database.projectId ?? ""), fromStore)
      const { previewData } = yield* Effect.orDie(
        decodeProject(Option.isSome(project) ? project.value.spec : undefined)
      )
      const home = (yield* Effect.orDie(decodeDatabase(database.spec))).region
      // It is made of files that are on the machine of the database.
      if (region !== home)
        return yield* invalid([
          { pointer: "/region", message: `must be the region of its database, which is ${home}` }
        ])
      const into = yield* Effect.mapError(resources.get(orgId, environmentUid), fromStore)
      const isOfPreview = Option.exists(into, ({ parentUid, projectId }) => parentUid !== projectId)
      const from = {
        environment: database.environment ?? "",
        previewData: previewData === "allowed",
        previews: isOfPreview ? [environment] : []
      }
      if (forbiddenInPreview(environment, from)) {
        return yield* problem(
          422,
          "preview_data_forbidden",
          'The project does not allow copies of production data in previews; set its previewData to "allowed" (svc projects update PROJECT --preview-data allowed), or choose another environment'
        )
      }
      return { environmentUid, region, sku }
    })

    /** Whether the backups reach it. What the newest log has not told yet is fetched from the server. */
    const reachable = Effect.fnUntraced(function* (database: ResourceRecord, source: BranchSource) {
      if (source.kind !== "backup" && source.kind !== "point_in_time") return
      const { lineage } = yield* Effect.orDie(decodeDatabase(database.spec))
      const wanted =
        source.kind === "backup"
          ? ({ kind: "backup", backupId: source.backupId } as const)
          : ({ kind: "time", at: new Date(source.pointInTime) } as const)
      yield* repository
        .reach({ orgId: database.orgId, lineage: lineage ?? database.uid }, database.uid, wanted)
        .pipe(
          Effect.mapError((error) =>
            error._tag === "StoreUnavailable"
              ? fromStore(error)
              : problem(422, "outside_recovery_window", error.message, {
                  errors: [
                    {
                      pointer: source.kind === "backup" ? "/source/backupId" : "/source/pointInTime",
                      message: "cannot be restored"
                    }
                  ]
                })
          )
        )
    })

    const branches = yield* resourceHandlers(DatabaseBranch, {
      view: BranchView,
      viewer: () => Effect.succeed(branchView),
      target: ({ params }: { readonly params: { readonly databaseId: string } }) =>
        theBranch(params.databaseId)
    })

    return handlers.handleAll(
      handlersOf(Api.groups.databaseBranches)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { uid, projectId } = yield* targetRecord
          const records = yield* Effect.mapError(
            resources.listKind(orgId, "DatabaseBranch", projectId ?? ""),
            fromStore
          )
          const views = yield* viewAll(records, branchView)
          return answer(
            BranchList,
            views.filter((view) => view.sourceDatabaseId === uid)
          )
        }),
        create: branches.create(
          Effect.fnUntraced(function* ({ payload }) {
            yield* billing
            const { reservation } = yield* RequestScope
            const database = yield* targetRecord
            const { environmentUid, region, sku } = yield* checked(database, payload)
            const source: BranchSource =
              payload.source.kind === "current"
                ? { kind: "current" }
                : payload.source.kind === "backup"
                  ? { kind: "backup", backupId: payload.source.backupId }
                  : {
                      kind: "point_in_time",
                      pointInTime: new Date(payload.source.pointInTime).toISOString()
                    }
            yield* reachable(database, source)
            const { name, environment, expiresInDays, deleteOnPreviewClose, previewId } = payload
            const { projectId, project } = database
            return {
              name,
              spec: {
                sourceEnvironment: database.environment,
                sourceDatabase: database.name,
                sourceDatabaseId: database.uid,
                source,
                region,
                sku,
                ...(expiresInDays === undefined ? {} : { expiresInDays }),
                ...(deleteOnPreviewClose === undefined ? {} : { deleteOnPreviewClose }),
                ...(typeof previewId === "string" ? { previewId } : {})
              },
              secrets: { [passwordField]: passwordOf(reservation) },
              place: { projectId, project, environment, parentUid: environmentUid },
              outcome: 202
            }
          })
        ),
        get: branches.get,
        update: branches.update(
          Effect.fnUntraced(function* ({ payload: { expiresInDays, deleteOnPreviewClose } }, record) {
            const state = branchView(record).status
            if (state === "expired" || state === "promoted") {
              return yield* invalid([
                { pointer: "/expiresInDays", message: `cannot be changed: the branch is ${state}` }
              ])
            }
            const now = new Date(yield* Clock.currentTimeMillis).toISOString()
            return (current) => ({
              ...current,
              ...(expiresInDays === undefined ? {} : { expiresInDays, expiresFrom: now }),
              ...(deleteOnPreviewClose === undefined ? {} : { deleteOnPreviewClose })
            })
          })
        ),
        promote: Effect.fnUntraced(function* ({ params }) {
          const { caller, reservation } = yield* RequestScope
          const branch = yield* theBranch(params.databaseId)
          // An earlier try promoted it.
          if (reservation.again && decodeBranch(branch).spec.promotedTo !== undefined)
            return branchView(branch)
          yield* stored(promotions.promote(branch, { ...caller.actor, outcome: 202 }))
          return branchView(yield* read(branch.uid))
        }),
        rotatePassword: Effect.fnUntraced(function* ({ params }) {
          const branch = yield* theBranch(params.databaseId)
          if (!branchView(branch).connectionReady)
            return yield* problem(409, "not_ready", "The branch is not ready")
          const { record, password } = yield* rotate(branch, decodeSpec)
          const { user, host, port, dbName } = yield* Effect.orDie(decodeStatus(record.status))
          if (user === null || host === null || port === null || dbName === null)
            return yield* Effect.die(new Error("a branch that is ready has no endpoint"))
          return {
            connectionString: postgresUrl({ user, host, port, dbName }, password),
            caCertificateUrl: yield* caCertificateUrl
          }
        }),
        delete: branches.delete((branch) => {
          const { spec, status } = decodeBranch(branch)
          const moving =
            spec.promotedTo !== undefined
              ? status?.state !== "promoted"
              : spec.source.kind === "replaced" && status?.hydrated !== true && status?.state !== "expired"
          // Until the folders are in their places, the data of the database may be in this one.
          return moving
            ? Effect.fail(
                problem(
                  409,
                  "promotion_in_progress",
                  "The data of the branch is just being moved; try again shortly"
                )
              )
            : Effect.void
        })
      })
    )
  })
)
