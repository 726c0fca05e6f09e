/** Handlers of `previews.*`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { defaultEnvironment, previewSlug } from "#schemas/names.ts"
import { isTrusted, Preview } from "#schemas/preview.ts"
import { ProjectSpec } from "#schemas/project.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetProject, targetRecord } from "#src/api/target.ts"
import { decodeWith } from "#src/api/views.ts"
import { amend } from "#src/api/writing.ts"
import { Resources } from "#src/store/Resources.ts"
import { isReady, type ListedRecord, type ResourceRecord } from "#src/store/records.ts"
import { PreviewView } from "./api.ts"

const decode = decodeWith(Preview)
const decodeProject = Schema.decodeUnknownEffect(ProjectSpec)
const defaultDays = 14
const day = 86_400_000

const after = (days: number | null) =>
  Effect.map(Clock.currentTimeMillis, (now) =>
    days === null ? null : new Date(now + days * day).toISOString()
  )

export const layer = HttpApiBuilder.group(
  Api,
  "previews",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const previews = yield* resourceHandlers(Preview, {
      view: PreviewView,
      viewer: () => Effect.succeed(previewView),
      taken: () => (failure) =>
        failure.code === "name_taken"
          ? problem(409, "name_taken", "The pull request has a preview already; change or close that one")
          : failure
    })

    /** Nothing is made that could never get its data. */
    const allowed = Effect.fnUntraced(function* (sourceEnvironment: string) {
      if (sourceEnvironment !== defaultEnvironment) return
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      const project = yield* Effect.mapError(resources.get(orgId, projectId), fromStore)
      const spec = yield* Effect.option(decodeProject(Option.getOrUndefined(project)?.spec))
      if (Option.exists(spec, ({ previewData }) => previewData === "allowed")) return
      return yield* problem(
        422,
        "preview_data_forbidden",
        'The project does not allow copies of production data in previews; set its previewData to "allowed" (svc projects update PROJECT --preview-data allowed)',
        { errors: [{ pointer: "/database/sourceEnvironment", message: "holds production data" }] }
      )
    })

    return handlers.handleAll(
      handlersOf(Api.groups.previews)({
        list: previews.list,
        create: previews.create(
          Effect.fnUntraced(function* ({ payload: { expiresInDays = defaultDays, ...spec } }) {
            if (spec.database != null) yield* allowed(spec.database.sourceEnvironment)
            const expiresAt = yield* after(expiresInDays)
            return { name: previewSlug(spec.pullRequest), spec: { ...spec, expiresAt } }
          })
        ),
        get: previews.get,
        update: previews.update(
          Effect.fnUntraced(function* ({ payload: { expiresInDays, ...changed } }) {
            const expiry = expiresInDays === undefined ? {} : { expiresAt: yield* after(expiresInDays) }
            return (current) => ({ ...current, ...changed, ...expiry })
          })
        ),
        approve: Effect.fnUntraced(function* ({ payload: { commit } }) {
          const changed = yield* amend(
            yield* targetRecord,
            Effect.fnUntraced(function* (record: ResourceRecord) {
              const { spec } = decode(record)
              if (!spec.fork)
                return yield* invalid([
                  { pointer: "/commit", message: "needs no approval: it is of no fork" }
                ])
              if (spec.commit !== commit)
                return yield* problem(
                  409,
                  "commit_moved",
                  `The pull request is at ${spec.commit} by now; look at that one, and approve it`
                )
              return { spec: { ...spec, approvedCommit: commit } }
            })
          )
          return previewView(changed)
        }),
        close: previews.delete()
      })
    )
  })
)

const previewView = (record: ListedRecord) => {
  const { spec, status } = decode(record)
  const { database: _, followed: __, repository: ___, pullRequest, ...shown } = spec
  const isClosing = record.deletionRequestedAt !== null
  const ready = record.conditions.find(({ type }) => type === "Ready")
  return {
    id: record.uid,
    pullRequest,
    ...shown,
    trusted: isTrusted(spec),
    status: isClosing
      ? ("closing" as const)
      : isReady(record.conditions)
        ? ("open" as const)
        : record.phase === "failed"
          ? ("failed" as const)
          : ("pending" as const),
    environment: previewSlug(pullRequest),
    address: status?.address ?? null,
    branchId: status?.branchId ?? null,
    deploymentId: status?.deploymentId ?? null,
    problem: ready === undefined || ready.reason === "Converged" ? null : ready.message,
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}
