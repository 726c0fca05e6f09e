/** What may come of a question to Stripe, in our words: a key, and what Stripe says of one, never leave this file. */
import * as Schema from "effect/Schema"

/**
 * - `away`: no answer, too many requests, or trouble at Stripe's side: the same request may succeed later.
 * - `busy`: Stripe works on an earlier request with the same idempotency key.
 * - `credential`: the key is unknown or revoked. `right`: the key may not do this.
 * - `missing`: there is no object of this id in the key's account.
 * - `idempotency`: the same idempotency key came with other parameters before.
 * - `rejected`: anything else that Stripe does not accept.
 */
export const ProcessorReason = Schema.Literals([
  "away",
  "busy",
  "credential",
  "right",
  "missing",
  "idempotency",
  "rejected"
])
export type ProcessorReason = typeof ProcessorReason.Type

export class ProcessorError extends Schema.TaggedError<ProcessorError>()("ProcessorError", {
  reason: ProcessorReason,
  /** A sentence without anything secret. */
  message: Schema.String,
  /** Stripe's own sentence, where it is about a parameter that users set. */
  said: Schema.optionalKey(Schema.String),
  retryAfterSeconds: Schema.optionalKey(Schema.Finite),
  /** It is what Stripe answered an earlier request with the same idempotency key: repeating it changes nothing. */
  replayed: Schema.optionalKey(Schema.Boolean)
}) {}

/** The parts of an error of the library that count, whatever else is in it. */
const Raised = Schema.Struct({
  type: Schema.String,
  message: Schema.String,
  rawType: Schema.optional(Schema.String),
  code: Schema.optional(Schema.String),
  param: Schema.optional(Schema.String),
  statusCode: Schema.optional(Schema.Int),
  headers: Schema.optional(Schema.Record(Schema.String, Schema.Unknown))
})
const isRaised = Schema.is(Raised)

const away = (more: Partial<Pick<ProcessorError, "retryAfterSeconds" | "replayed">> = {}) =>
  new ProcessorError({ reason: "away", message: "Stripe does not answer as it should", ...more })

/** Ids and keys of Stripe's: prefixes, an underscore, and letters. Users know ours only. */
const identifier = /\b[a-z]{2,8}_[A-Za-z0-9_]{6,}/
const permissions = /permission|restricted key|not allowed|does not have (access|the required)/i

const retryAfter = (headers: Readonly<Record<string, unknown>>): number | undefined => {
  const value = headers["retry-after"]
  return typeof value === "string" && /^\d{1,4}$/.test(value) ? Number(value) : undefined
}

/** (Stripe API reference, "Errors" and "Idempotent requests".) */
export const asProcessorError = (cause: unknown): ProcessorError => {
  if (!isRaised(cause) || cause.statusCode === undefined) return away()
  const { statusCode, code, param, message, headers = {} } = cause
  if (statusCode >= 500) return away({ replayed: headers["idempotent-replayed"] === "true" })
  if (statusCode === 429 || code === "rate_limit" || code === "lock_timeout") {
    const retryAfterSeconds = retryAfter(headers)
    return away(retryAfterSeconds === undefined ? {} : { retryAfterSeconds })
  }
  const failed = (reason: ProcessorReason, sentence: string) =>
    new ProcessorError({ reason, message: sentence })
  if (statusCode === 409) return failed("busy", "Stripe works on the same request still")
  if (statusCode === 401) return failed("credential", "Stripe does not accept the key any more")
  if (cause.rawType === "idempotency_error")
    return failed("idempotency", "This key came with another request before")
  if (statusCode === 404 || (code === "resource_missing" && param === "id"))
    return failed("missing", "Stripe has no such object in this account")
  if (
    statusCode === 403 ||
    /permission/.test(code ?? "") ||
    (param === undefined && permissions.test(message))
  )
    return failed("right", "The key may not do this at Stripe")
  const about = param === undefined ? "" : ` (its parameter ${param})`
  const shown = param !== undefined && message.length <= 500 && !identifier.test(message)
  return new ProcessorError({
    reason: "rejected",
    message: `Stripe did not accept the request${about}`,
    ...(shown ? { said: message } : {})
  })
}
