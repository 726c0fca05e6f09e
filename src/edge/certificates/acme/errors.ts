/** What an ACME server refused, or that it did not answer. */
import * as Schema from "effect/Schema"

export class AcmeError extends Schema.TaggedError<AcmeError>()("AcmeError", {
  /** In the server's own words, where it said any. */
  message: Schema.String,
  /** See `CertificateError`. */
  type: Schema.String,
  /** Of the answer; undefined: none came. */
  status: Schema.optionalKey(Schema.Int),
  /** Seconds after which the server wants to hear of us again. */
  retryAfter: Schema.optionalKey(Schema.Finite)
}) {}

const prefix = "urn:ietf:params:acme:error:"

const Part = Schema.Struct({
  type: Schema.optional(Schema.String),
  detail: Schema.optional(Schema.String),
  identifier: Schema.optional(Schema.Struct({ value: Schema.String }))
})

/** A problem document (RFC 8555, section 6.7; RFC 9457). */
export const Problem = Schema.Struct({
  ...Part.fields,
  subproblems: Schema.optional(Schema.Array(Part))
})
export type Problem = typeof Problem.Type

/** The last word of a type that the protocol knows; any other as it is. */
export const typeOf = ({ type }: Problem): string =>
  type === undefined ? "answer" : type.startsWith(prefix) ? type.slice(prefix.length) : type

/** What a problem says, with what it says of each name. */
export const wordsOf = ({ detail, subproblems = [] }: Problem): string => {
  const parts = subproblems.flatMap((one) =>
    one.detail === undefined
      ? []
      : [one.identifier === undefined ? one.detail : `${one.identifier.value}: ${one.detail}`]
  )
  const said = [...(detail === undefined ? [] : [detail]), ...parts]
  return said.length === 0 ? "The certificate authority gave no reason" : said.join("; ")
}
