/**
 * What was wrong with a request to object storage, in our words. What a server says is not repeated: it may say
 * anything, and what it was sent.
 */
import * as Schema from "effect/Schema"
import type { AddressBlocked } from "#src/outbound/lookup.ts"
import type { NameUnknown } from "#src/outbound/names.ts"
import { PlaceError, type PlaceFault } from "../repository/Place.ts"

export type Doing = "read" | "write" | "delete"

/** Names of errors (`Code` in answers) by what they mean. */
const byCode: ReadonlyArray<readonly [PlaceFault, ReadonlyArray<string>]> = [
  [
    "credentials",
    [
      "InvalidAccessKeyId",
      "SignatureDoesNotMatch",
      "InvalidToken",
      "ExpiredToken",
      "TokenRefreshRequired",
      "InvalidSecurity",
      "NotSignedUp",
      "AccountProblem",
      "Unauthorized",
      "UnauthorizedAccess"
    ]
  ],
  ["bucket", ["NoSuchBucket", "InvalidBucketName", "InvalidBucketState", "AllAccessDisabled"]],
  [
    "region",
    [
      "AuthorizationHeaderMalformed",
      "PermanentRedirect",
      "TemporaryRedirect",
      "Redirect",
      "IllegalLocationConstraintException",
      "IncorrectEndpoint"
    ]
  ],
  ["clock", ["RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"]],
  ["not_found", ["NoSuchKey", "NotFound"]],
  [
    "no_space",
    [
      "QuotaExceeded",
      "XMinioStorageFull",
      "InsufficientCapacity",
      "InsufficientStorage",
      "StorageCapExceeded"
    ]
  ],
  ["timeout", ["TimeoutError", "RequestTimeout", "ETIMEDOUT", "ESOCKETTIMEDOUT"]],
  ["dns", ["ENOTFOUND", "EAI_AGAIN", "ENODATA"]],
  ["tls", ["EPROTO", "SELF_SIGNED_CERT_IN_CHAIN", "DEPTH_ZERO_SELF_SIGNED_CERT"]]
]
const known = new Map(byCode.flatMap(([fault, codes]) => codes.map((code) => [code, fault] as const)))
const ofTls = /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|CRL_|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE)/

const meanings: Readonly<Record<PlaceFault, string>> = {
  dns: "the name of the endpoint has no address",
  blocked_address: "the endpoint is at an address that requests do not go to (see SVC_OUTBOUND_ALLOW)",
  tls: "the endpoint's certificate is not trusted, or it does not speak TLS",
  credentials: "the server does not accept the credentials",
  bucket: "there is no such bucket",
  region: "the bucket is in another region, or at another endpoint",
  clock: "the server's clock and the one of this machine differ too much",
  not_found: "there is no such object",
  read: "the credentials do not allow reading",
  write: "the credentials do not allow writing",
  delete: "the credentials do not allow deleting",
  no_space: "the storage is full",
  timeout: "no answer came in time",
  unreachable: "the endpoint cannot be reached"
}

/** As clients throw it: an error of the network, or an answer that is an error. */
const Thrown = Schema.Struct({
  name: Schema.optionalKey(Schema.String),
  code: Schema.optionalKey(Schema.String),
  Code: Schema.optionalKey(Schema.String),
  Region: Schema.optionalKey(Schema.String),
  $metadata: Schema.optionalKey(Schema.Struct({ httpStatusCode: Schema.optional(Schema.Int) })),
  $response: Schema.optionalKey(Schema.Struct({ statusCode: Schema.optional(Schema.Int) }))
})
const isThrown = Schema.is(Thrown)

/** Of a server's words only what looks like a code is shown, which no key or token does: letters in camel case. */
const isWord = (text: string | undefined): text is string => /^[A-Z][A-Za-z_]{2,47}$/.test(text ?? "")
const isRegion = (text: string | undefined): text is string =>
  /^[a-z]{2,10}(-[a-z]{2,10}){0,3}(-\d{1,2})?$/.test(text ?? "")

export const faultOf =
  (doing: Doing, what: string) =>
  (cause: unknown): PlaceError => {
    if (Schema.is(PlaceError)(cause)) return cause
    const fault = (reason: PlaceFault, detail = "") =>
      new PlaceError({ reason, message: `Cannot ${doing} ${what}: ${meanings[reason]}${detail}` })
    if (!isThrown(cause)) return fault("unreachable")
    const status = cause.$metadata?.httpStatusCode ?? cause.$response?.statusCode
    const words = [cause.Code, cause.code, cause.name].filter(isWord)
    const [word] = words
    const detail =
      status === undefined
        ? word === undefined
          ? ""
          : ` (${word})`
        : ` (it answered ${status}${word === undefined ? "" : ` ${word}`})`
    for (const one of words) {
      const reason = known.get(one) ?? (ofTls.test(one) ? "tls" : undefined)
      if (reason === "region" && isRegion(cause.Region)) return fault(reason, ` (${cause.Region})`)
      if (reason !== undefined) return fault(reason, detail)
    }
    if (status === undefined) return fault("unreachable", detail)
    if (status === 301 || status === 307 || status === 308) return fault("region", detail)
    if (status === 401) return fault("credentials", detail)
    if (status === 403 || status === 405) return fault(doing, detail)
    if (status === 507) return fault("no_space", detail)
    if (status === 408) return fault("timeout", detail)
    return new PlaceError({
      reason: "unreachable",
      message:
        status >= 500
          ? `Cannot ${doing} ${what}: the server has trouble${detail}`
          : `Cannot ${doing} ${what}: the endpoint does not answer as object storage does${detail}`
    })
  }

/** No answer within the time that somebody waits. */
export const tookTooLong = (doing: Doing, what: string, seconds: number): PlaceError =>
  new PlaceError({
    reason: "timeout",
    message: `Cannot ${doing} ${what}: ${meanings.timeout} (${seconds} s)`
  })

/**
 * Goes through the HTTP client, which hands it on as it is. Which address a name has in this network is not told: only
 * that it is one that requests do not go to.
 */
export const addressFault = ({ _tag }: AddressBlocked | NameUnknown): PlaceError => {
  const reason = _tag === "AddressBlocked" ? "blocked_address" : "dns"
  return new PlaceError({ reason, message: `Cannot connect: ${meanings[reason]}` })
}
