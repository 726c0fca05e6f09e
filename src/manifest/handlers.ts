/** Handlers of `manifest.*`. */
import * as Effect from "effect/Effect"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { isYaml } from "#src/api/body.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { faultsOf } from "#src/api/failure.ts"
import { billedLate, billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, type Problem, problem } from "#src/api/problem.ts"
import { type ManifestFault, toPointer } from "#src/api/source-location.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { applyRequest } from "./api.ts"
import { toYaml } from "./export.ts"
import {
  type Blocked,
  type InvalidManifest,
  type MalformedSource,
  Manifests,
  type RoleTooLow,
  type StalePlan,
  type UnknownPlan
} from "./Manifests.ts"
import type { ReaderBusy } from "./Reader.ts"

type Failure =
  | MalformedSource
  | ReaderBusy
  | InvalidManifest
  | Blocked
  | StalePlan
  | UnknownPlan
  | RoleTooLow
  | NameTaken
  | NotFound
  | Refused
  | RevisionConflict
  | StoreUnavailable

const toProblem = (error: Failure): Problem => {
  switch (error._tag) {
    case "MalformedSource":
      return problem(400, "malformed_body", `The body is not valid JSON: ${error.message}`)
    case "ReaderBusy":
      return problem(503, "busy", "Too many large manifests wait to be read; try again shortly", {
        headers: { "retry-after": "10" }
      })
    case "InvalidManifest":
      return invalid(error.faults)
    case "Blocked":
      return problem(422, "plan_blocked", `The plan cannot be applied: ${error.blockers[0]?.message}`, {
        errors: error.blockers
      })
    case "StalePlan":
      return problem(
        409,
        "stale_plan",
        "What the plan was made for has changed since; plan again and review it",
        {
          addresses: error.addresses
        }
      )
    case "UnknownPlan":
      return problem(
        404,
        "not_found",
        "There is no such plan that can be used: it may have been applied, or be older than 24 hours; plan again"
      )
    case "RoleTooLow":
      return problem(403, "forbidden", `The plan deletes what only the role ${error.needed} may delete`, {
        addresses: error.addresses
      })
    default:
      return fromStore(error)
  }
}

/** What the request says its text is in. */
const language = Effect.map(HttpServerRequest.HttpServerRequest, (request): "json" | "yaml" =>
  isYaml(request) ? "yaml" : "json"
)

const ApplyBody = applyRequest(Schema.Null)
const decodeApply = Schema.decodeUnknownResult(ApplyBody)

export const layer = HttpApiBuilder.group(
  Api,
  "manifest",
  Effect.fnUntraced(function* (handlers) {
    const manifests = yield* Manifests
    return handlers.handleAll(
      handlersOf(Api.groups.manifest)({
        get: Effect.fnUntraced(function* () {
          const { orgId, orgSlug } = yield* RequestScope
          const request = yield* HttpServerRequest.HttpServerRequest
          const manifest = yield* Effect.mapError(manifests.get(orgId, orgSlug), fromStore)
          return /yaml/.test(request.headers["accept"] ?? "")
            ? HttpServerResponse.text(toYaml(manifest), { contentType: "application/yaml" })
            : HttpServerResponse.jsonUnsafe(manifest)
        }),
        plan: Effect.fnUntraced(function* ({ payload, query }) {
          const { orgId, orgSlug, reservation } = yield* RequestScope
          const request = { prune: query.prune ?? false, confirm: query.confirm ?? [] }
          const source = { text: payload, language: yield* language, inside: undefined }
          return yield* manifests.open(source).pipe(
            Effect.flatMap((opened) => manifests.plan(reservation.uid, orgId, orgSlug, opened, request)),
            Effect.map(({ digest: _, ...plan }) => plan),
            Effect.mapError(toProblem)
          )
        }),
        getPlan: Effect.fnUntraced(function* ({ params }) {
          const { orgId, orgSlug } = yield* RequestScope
          return yield* Effect.mapError(manifests.savedPlan(orgId, orgSlug, params.planId), toProblem)
        }),
        apply: billedLate(
          Effect.fnUntraced(function* ({ payload }) {
            const { orgId, orgSlug, role, caller, reservation } = yield* RequestScope
            const actor = { ...caller.actor, outcome: 202 }
            const source = { text: payload, language: yield* language, inside: "manifest" }
            const opened = yield* Effect.mapError(manifests.open(source), toProblem)
            const body = decodeApply(opened.envelope, { errors: "all", onExcessProperty: "error" })
            if (Result.isFailure(body)) return yield* invalid(faultsOf("", body.failure.issue))
            if ("planId" in body.success) {
              yield* billing
              return yield* Effect.mapError(
                manifests.applyPlan(orgId, body.success.planId, role, actor, reservation.again),
                toProblem
              )
            }
            const { prune, confirm } = body.success
            if (opened.document === undefined) return yield* moved(invalid(opened.faults), opened.faults)
            yield* billing
            const request = { prune: prune ?? false, confirm: confirm ?? [] }
            return yield* manifests
              .applyManifest(orgId, orgSlug, opened, request, role, actor, reservation)
              .pipe(
                Effect.mapError(toProblem),
                // The document sits inside of the request here: its pointers start there.
                Effect.mapError((failure) =>
                  failure.errors === undefined ? failure : moved(failure, failure.errors)
                )
              )
          })
        )
      })
    )
  })
)

const moved = (failure: Problem, errors: ReadonlyArray<ManifestFault>): Problem =>
  problem(failure.status, failure.code, failure.detail, {
    errors: errors.map((error) => ({ ...error, pointer: toPointer(["manifest"]) + error.pointer }))
  })
