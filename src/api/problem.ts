/** Failures as handlers raise them, and the one form in which they leave the server. */

import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { CurrentRequest } from "#src/access/CurrentRequest.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Fault, ProblemBody } from "./definition/problem.ts"

const titles: Readonly<Record<number, string>> = {
  400: "The request cannot be read",
  401: "Not authenticated",
  402: "Billing is not active",
  403: "Not allowed",
  404: "Not found",
  405: "Method not allowed",
  409: "Conflict",
  412: "Precondition failed",
  413: "The request is too large",
  415: "Unsupported media type",
  421: "Not this server",
  422: "The request is not valid",
  429: "Too many requests",
  500: "Internal error",
  502: "Refused or not answered by another service",
  503: "Temporarily unavailable"
}

export class Problem extends Data.TaggedError("Problem")<{
  readonly status: number
  readonly code: string
  readonly detail: string
  readonly errors?: ReadonlyArray<Fault>
  readonly addresses?: ReadonlyArray<string>
  readonly headers?: Readonly<Record<string, string>>
}> {}

export const problem = (
  status: number,
  code: string,
  detail: string,
  extra: {
    readonly errors?: ReadonlyArray<Fault>
    readonly addresses?: ReadonlyArray<string>
    readonly headers?: Readonly<Record<string, string>>
  } = {}
): Problem => new Problem({ status, code, detail, ...extra })

export const notFound = (what: string): Problem => problem(404, "not_found", `There is no such ${what}`)

/** About a resource whose stored specification does not decode. */
export const unreadable = problem(
  409,
  "unreadable_specification",
  "The stored specification of the resource is not valid; apply a manifest that replaces it, or delete it"
)

export const invalid = (errors: ReadonlyArray<Fault>): Problem =>
  problem(
    422,
    "invalid",
    `The request has ${errors.length === 1 ? "a fault" : `${errors.length} faults`}: ${errors[0]?.pointer} ${errors[0]?.message}`,
    {
      errors
    }
  )

const internal = problem(
  500,
  "internal",
  "Something went wrong on our side; the request id leads to the cause in the log"
)

export const toResponse = (failure: Problem): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
  Effect.map(CurrentRequest, ({ id }) => {
    const body: ProblemBody = {
      type: `urn:svc:problem:${failure.code}`,
      title: titles[failure.status] ?? "Error",
      status: failure.status,
      detail: failure.detail,
      code: failure.code,
      requestId: id,
      ...(failure.errors === undefined ? {} : { errors: failure.errors }),
      ...(failure.addresses === undefined ? {} : { addresses: failure.addresses })
    }
    return HttpServerResponse.jsonUnsafe(body, {
      status: failure.status,
      contentType: "application/problem+json",
      headers: { "cache-control": "no-store", ...failure.headers }
    })
  })

export const internalResponse = toResponse(internal)

/** For creations whose name is a slug. */
export const slugTaken =
  (slug: string) =>
  (failure: Problem): Problem =>
    failure.code === "name_taken"
      ? problem(409, "slug_taken", `The slug "${slug}" is taken; choose another`)
      : failure

/** How failures of the store look to a caller. */
export const fromStore = (
  error: NameTaken | NotFound | Refused | RevisionConflict | StoreUnavailable
): Problem => {
  switch (error._tag) {
    case "NameTaken":
      return problem(409, "name_taken", error.message)
    case "NotFound":
      return problem(404, "not_found", error.message)
    case "Refused":
      if (error.code === "budget_exhausted") return problem(402, error.code, error.message)
      return error.faults === undefined
        ? problem(
            409,
            error.code,
            error.message,
            error.addresses === undefined ? {} : { addresses: error.addresses }
          )
        : invalid(error.faults)
    case "RevisionConflict":
      return problem(409, "revision_conflict", error.message)
    case "StoreUnavailable":
      return problem(503, "store_unavailable", "The state store does not answer; try again shortly", {
        headers: { "retry-after": "2" }
      })
  }
}
