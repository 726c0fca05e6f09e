/** The body of every error (RFC 9457), and the statuses an operation may answer with it. */

import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"

export const Fault = Schema.Struct({
  pointer: Schema.String.annotate({
    description: "JSON Pointer (RFC 6901) to the faulty part of the request"
  }),
  message: Schema.String,
  line: Schema.optionalKey(Schema.Int.annotate({ description: "Line in the source text, from 1" })),
  column: Schema.optionalKey(Schema.Int.annotate({ description: "Column in the source text, from 1" }))
}).annotate({ identifier: "Fault" })
export type Fault = typeof Fault.Type

export const ProblemBody = Schema.Struct({
  type: Schema.String.annotate({ description: "URI that ends in the code" }),
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

const at = <const Status extends number>(status: Status) =>
  ProblemBody.annotate({ identifier: `Problem${status}` }).pipe(
    HttpApiSchema.asJson({ contentType: "application/problem+json" }),
    HttpApiSchema.status(status)
  )

const all = {
  400: at(400),
  401: at(401),
  402: at(402),
  403: at(403),
  404: at(404),
  409: at(409),
  412: at(412),
  413: at(413),
  415: at(415),
  422: at(422),
  429: at(429),
  500: at(500),
  503: at(503)
} as const
export type ProblemStatus = keyof typeof all

/** Every operation that takes a credential may answer these. */
const common = [all[401], all[403], all[404], all[422], all[429], all[500], all[503]] as const

/** The errors of an operation: the common ones and those named. */
export const problems = (...statuses: ReadonlyArray<400 | 402 | 409 | 412 | 413 | 415>) =>
  [...common, ...statuses.map((status) => all[status])] as const

/** Errors of operations that read a body. */
export const bodyProblems = (...statuses: ReadonlyArray<402 | 409 | 412>) =>
  problems(400, 413, 415, 409, ...statuses)
