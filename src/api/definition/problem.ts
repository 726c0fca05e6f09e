/** The body of every error (RFC 9457), and the statuses an operation may answer with it. */

import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"

export const Fault = Schema.Struct({
  pointer: Schema.String.annotate({
    description: "JSON Pointer (RFC 6901) to the faulty part of the request"
  }),
  message: Schema.String,
  code: Schema.optionalKey(
    Schema.String.annotate({
      description: "Stable word for programs, of what keeps a plan from being applied"
    })
  ),
  line: Schema.optionalKey(Schema.Int.annotate({ description: "Line in the source text, from 1" })),
  column: Schema.optionalKey(Schema.Int.annotate({ description: "Column in the source text, from 1" }))
}).annotate({ identifier: "Fault" })
export type Fault = typeof Fault.Type

export const ProblemBody = Schema.Struct({
  type: Schema.String.annotate({ format: "uri", description: "URI that ends in the code" }),
  title: Schema.String,
  status: Schema.Int,
  detail: Schema.String.annotate({ description: "A sentence that says what to do" }),
  code: Schema.String.annotate({ description: "Stable word for programs" }),
  requestId: Schema.String,
  errors: Schema.optionalKey(
    Schema.Array(Fault).annotate({ description: "Every fault of the request at once" })
  ),
  addresses: Schema.optionalKey(
    Schema.Array(Schema.String).annotate({ description: "The resources that a conflict is about" })
  )
}).annotate({ identifier: "Problem" })
export type ProblemBody = typeof ProblemBody.Type

const at = <const Status extends number>(status: Status, description: string) =>
  ProblemBody.annotate({ identifier: `Problem${status}`, description }).pipe(
    HttpApiSchema.asJson({ contentType: "application/problem+json" }),
    HttpApiSchema.status(status)
  )

const all = {
  400: at(400, "The request cannot be read"),
  401: at(401, "No valid credential came with the request"),
  402: at(402, "The organization's billing is not active, or its budget cannot take it"),
  403: at(403, "The credential may not do this"),
  404: at(404, "What the path names does not exist, or the caller may not know of it"),
  409: at(409, "It conflicts with what there is; `code` says how"),
  412: at(412, "What there is has another ETag than `If-Match` says"),
  413: at(413, "The body is larger than the operation takes"),
  415: at(415, "The body has a media type that the operation does not take"),
  421: at(421, "This server does not answer for the host name of the request"),
  422: at(422, "The request is not valid; `errors` names every fault"),
  429: at(429, "Too many requests; `Retry-After` says when to come back"),
  500: at(500, "Something went wrong in the service; the log has the cause under the request id"),
  502: at(502, "What the operation needs besides the store does not answer, or refused; nothing was changed"),
  503: at(503, "Something that the service needs does not answer; `Retry-After` says when to come back")
} as const

/** Every operation may answer these. */
export const anyProblems = [all[400], all[421], all[500]] as const
/** Every operation that takes a credential may answer these as well; 409 when what is stored cannot be read any more. */
const common = [...anyProblems, all[401], all[403], all[404], all[409], all[422], all[429], all[503]] as const

/** The errors of an operation: the common ones and those named. */
export const problems = (...statuses: ReadonlyArray<402 | 412 | 413 | 415 | 502>) =>
  [...common, ...statuses.map((status) => all[status])] as const

/** Errors of operations that read a body. */
export const bodyProblems = (...statuses: ReadonlyArray<402 | 412 | 502>) => problems(413, 415, ...statuses)
