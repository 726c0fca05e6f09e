/** Handlers of `gitSources.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import { GitSource, type GitSourceFault } from "#schemas/git-source.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetRecord } from "#src/api/target.ts"
import { decodeWith } from "#src/api/views.ts"
import type { ListedRecord } from "#src/store/records.ts"
import { GitSourceView } from "./api.ts"
import { GitSources } from "./GitSources.ts"
import { nothingYet } from "./look.ts"
import { Reviews } from "./Reviews.ts"

const decode = decodeWith(GitSource)

/** Who makes it or changes it. An agent must have been let to apply manifests. */
const principal = Effect.gen(function* () {
  const { caller } = yield* RequestScope
  if (caller.grant !== undefined && !caller.grant.scopes.includes("manifest.apply"))
    return yield* problem(
      403,
      "forbidden",
      "A git source applies manifests: the grant must have the scope manifest.apply as well"
    )
  return caller.actor.principal
})

/** What pull requests show is read and written by a connection. */
const reviewable = (spec: { readonly reviewed?: boolean; readonly connection?: string | null }) =>
  spec.reviewed === true && spec.connection == null
    ? invalid([{ pointer: "/reviewed", message: "takes a git connection, which opens the pull requests" }])
    : Effect.void

export const layer = HttpApiBuilder.group(
  Api,
  "gitSources",
  Effect.fnUntraced(function* (handlers) {
    const sources = yield* GitSources
    const reviews = yield* Reviews
    const operations = yield* resourceHandlers(GitSource, {
      view: GitSourceView,
      viewer: () => Effect.succeed(sourceView)
    })
    return handlers.handleAll(
      handlersOf(Api.groups.gitSources)({
        list: operations.list,
        create: operations.create(
          Effect.fnUntraced(function* ({ payload: { name, ...spec } }) {
            yield* reviewable(spec)
            return { name, spec: { ...spec, principal: yield* principal } }
          })
        ),
        get: operations.get,
        update: operations.update(
          Effect.fnUntraced(function* ({ payload: { path, ...payload } }) {
            const by = yield* principal
            yield* reviewable({ ...decode(yield* targetRecord).spec, ...payload })
            return ({ path: before, ...current }) => {
              const named = path === undefined ? before : path
              return { ...current, ...payload, ...(named == null ? {} : { path: named }), principal: by }
            }
          })
        ),
        delete: operations.delete(),
        sync: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          const { spec } = decode(record)
          if (spec.suspended)
            return yield* problem(
              409,
              "suspended",
              `The git source "${record.name}" is suspended; resume it first`
            )
          yield* Effect.mapError(sources.ask(record), fromStore)
          return sourceView(record)
        }),
        approve: Effect.fnUntraced(function* ({ payload }) {
          const { caller } = yield* RequestScope
          const record = yield* targetRecord
          const { url, connection } = decode(record).spec
          if (connection === null)
            return yield* problem(
              409,
              "no_connection",
              `The git source "${record.name}" has no git connection, by which pull requests are read`
            )
          const { orgId, uid } = record
          yield* Effect.mapError(reviews.approve({ orgId, uid, url }, payload, caller.actor), fromStore)
          return sourceView(record)
        })
      })
    )
  })
)

/** Faults of what is to be done, rather than of the way there. */
const held: ReadonlySet<GitSourceFault["code"]> = new Set([
  "plan_blocked",
  "owner_needed",
  "not_reviewed",
  "billing_inactive"
])

const sourceView = (record: ListedRecord) => {
  const { spec, status } = decode(record)
  const { principal: _, ...settings } = spec
  const { failures: __, ...seen } = status ?? nothingYet
  const word = spec.suspended
    ? ("suspended" as const)
    : seen.lookedAt === null
      ? ("pending" as const)
      : seen.fault === null
        ? ("synced" as const)
        : held.has(seen.fault.code)
          ? ("held" as const)
          : ("failed" as const)
  return {
    id: record.uid,
    name: record.name,
    ...settings,
    path: settings.path ?? null,
    status: word,
    ...seen,
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}
