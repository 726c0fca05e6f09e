/** Everything that can come out of reading a request, validating it and handling it, as the answer it deserves. */

import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as HttpServerError from "effect/http/HttpServerError"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiError from "effect/http-api/HttpApiError"
import * as SchemaIssue from "effect/SchemaIssue"
import { allowedValues } from "#schemas/allowed-values.ts"
import type { Fault } from "./definition/problem.ts"
import { internalResponse, invalid, Problem, problem, toResponse } from "./problem.ts"

export const tooLarge = problem(413, "payload_too_large", "The body is larger than this operation takes")
export const malformed = problem(400, "malformed_body", "The body is not valid JSON")

const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** A JSON Pointer (RFC 6901) to `path`. */
export const pointerTo = (path: ReadonlyArray<PropertyKey>): string =>
  path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")

/** Where a part of the request sits, as the first words of its pointer. The body is the root itself. */
export const rootOf: Readonly<Record<"Payload" | "Query" | "Params" | "Headers", string>> = {
  Payload: "",
  Query: "/query",
  Params: "/path",
  Headers: "/headers"
}

export const faultsOf = (root: string, issue: SchemaIssue.Issue): ReadonlyArray<Fault> => {
  switch (issue._tag) {
    case "Composite":
      return issue.issues.flatMap((inner) => faultsOf(root, inner))
    case "Encoding":
      return faultsOf(root, issue.issue)
    case "Pointer":
      return faultsOf(root + pointerTo(issue.path), issue.issue)
    case "AnyOf":
      if (issue.issues.length > 0) return issue.issues.flatMap((inner) => faultsOf(root, inner))
  }
  const allowed = allowedValues(issue)
  if (allowed !== undefined) return [{ pointer: root, message: allowed }]
  return format(issue).issues.map((one) => ({
    pointer: root + pointerTo((one.path ?? []).map((part) => (typeof part === "object" ? part.key : part))),
    message: one.message
  }))
}

export const toFailureResponse = (
  cause: Cause.Cause<unknown>
): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  for (const reason of cause.reasons) {
    if (reason._tag === "Interrupt") return Effect.interrupt
    const error: unknown = reason._tag === "Fail" ? reason.error : reason.defect
    if (error instanceof Problem) return toResponse(error)
    if (
      HttpApiError.HttpApiSchemaError.is(error) &&
      error.kind !== "Body" &&
      error.kind !== "ResponseHeaders"
    ) {
      const { issue } = error.cause
      // The framework reports unparsable JSON as an issue of the whole body.
      if (
        error.kind === "Payload" &&
        format(issue).issues.some(({ message }) => message === "Expected a valid JSON body")
      ) {
        return toResponse(malformed)
      }
      return toResponse(invalid(faultsOf(rootOf[error.kind], issue)))
    }
    if (HttpApiError.HttpApiPayloadTooLarge.is(error)) return toResponse(tooLarge)
    if (HttpServerError.isHttpServerError(error) && error.reason._tag === "RequestParseError") {
      return toResponse(error.reason.reason === "BodyTooLarge" ? tooLarge : malformed)
    }
  }
  return Effect.andThen(Effect.logError("a request failed unexpectedly", cause), internalResponse)
}
