/** What a key can do at Stripe, found out by looks alone: enough for its scopes, and not more than is safe. */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type { CustomerPaymentsStatus, PaymentScope } from "#schemas/customer-payments.ts"
import type { Processor } from "./Processor.ts"
import type { ProcessorError } from "./ProcessorError.ts"
import { lookOf } from "./scopes.ts"

export interface KeyRefused {
  readonly refusal: NonNullable<CustomerPaymentsStatus["refusal"]>
  /** A scope whose right it lacks. */
  readonly scope?: PaymentScope
}

/** Looks at the same time: Stripe counts them. */
const atOnce = 3

/**
 * `known` are paths of objects that were seen in the account before: a key that
 * misses some of them and finds none is of another one.
 * Undefined: the key is as it should be.
 */
export const checkKey = Effect.fnUntraced(function* (
  processor: Processor["Service"],
  key: Redacted.Redacted,
  scopes: ReadonlyArray<PaymentScope>,
  known: ReadonlyArray<`/v1/${string}`>
): Effect.fn.Return<KeyRefused | undefined, ProcessorError> {
  const look = (path: `/v1/${string}`) =>
    Effect.matchEffect(processor.ask("stripe.key.check", { key, method: "GET", path }), {
      onSuccess: () => Effect.succeed("found" as const),
      onFailure: (error) =>
        error.reason === "away" || error.reason === "busy" ? Effect.fail(error) : Effect.succeed(error.reason)
    })
  const byPath = new Map(scopes.map((scope) => [lookOf(scope), scope]))
  const tried = yield* Effect.forEach(
    byPath,
    ([path, scope]) => Effect.map(look(path), (outcome) => ({ scope, outcome })),
    { concurrency: atOnce }
  )
  if (tried.some(({ outcome }) => outcome === "credential")) return { refusal: "revoked" }
  const lacking = tried.find(({ outcome }) => outcome !== "found")
  if (lacking !== undefined) return { refusal: "right_missing", scope: lacking.scope }
  if ((yield* look("/v1/balance")) === "found") return { refusal: "too_wide" }
  const seen = yield* Effect.forEach(known, look, { concurrency: atOnce })
  // What the key may not see says nothing about whose it is.
  return seen.includes("missing") && !seen.includes("found") ? { refusal: "other_account" } : undefined
})
