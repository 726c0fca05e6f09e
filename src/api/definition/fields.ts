/** Parts that several groups of operations share: path and query parameters, headers, pages. */

import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { EnvironmentSlug } from "#schemas/names.ts"

export const orgParams = {
  orgId: Schema.String.annotate({ description: "Id or slug of the organization" })
}
export const projectParams = {
  ...orgParams,
  projectId: Schema.String.annotate({ description: "Id or slug of the project" })
}

const EnvironmentQuery = Schema.optionalKey(EnvironmentSlug)
/** Query of operations on one environment. */
export const environmentQuery = { environment: EnvironmentQuery }

export const ifMatch = {
  "if-match": Schema.optionalKey(
    Schema.String.annotate({ description: "ETag of the state that the change is based on (RFC 9110)" })
  )
}
export const idempotencyKey = {
  "idempotency-key": Schema.optionalKey(
    Schema.String.check(Schema.isPattern(/^[\x21-\x7e]{1,255}$/u)).annotate({
      description:
        "A request takes effect once: repeating it with the same key gives the first answer again, for 24 hours. A refused request leaves its key free"
    })
  )
}

/** A body with the revision of what it shows, as an ETag. */
export const withEtag = <S extends Schema.Top>(schema: S) =>
  HttpApiSchema.WithHeaders(schema, { etag: Schema.String })

export const pageQuery = {
  limit: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 })).annotate({ description: "Default 20" })
  ),
  cursor: Schema.optionalKey(
    Schema.String.check(Schema.isMaxLength(500)).annotate({ description: "`nextCursor` of the page before" })
  )
}
export const defaultPageSize = 20

export const page = <S extends Schema.Top>(item: S) =>
  Schema.Struct({
    items: Schema.Array(item),
    nextCursor: Schema.NullOr(Schema.String).annotate({ description: "null at the end" })
  })

export const Id = Schema.String.annotate({ format: "uuid" })
export const Timestamp = Schema.String.annotate({
  format: "date-time",
  description: "UTC, RFC 3339 with milliseconds"
})
/** Where the certificate is that signs the certificates of managed servers. */
export const caCertificateUrl = Schema.String.annotate({
  format: "uri",
  description: "Certificate of the authority that signed the server's certificate; give it to the client"
})
export const ServiceStatus = Schema.Literals(["provisioning", "ready", "failed"])
export const Deleted = Schema.Struct({ ok: Schema.Literal(true) }).annotate({ identifier: "Deleted" })
