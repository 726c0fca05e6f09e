/**
 * The account at Stripe is its owner's: of it nothing is made or changed but a webhook endpoint. What this keeps true: the
 * key is looked at now and then, the webhook secrets in force are those that were given, and where the key may, the
 * platform's endpoint is there and is told of everything.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { CustomerPayments, paymentCredentialField } from "#schemas/customer-payments.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"
import { Connections, type Kept, refusalText } from "#src/payments/Connections.ts"
import { checkKey } from "#src/payments/check-key.ts"
import * as endpoints from "#src/payments/endpoint.ts"
import { Processor } from "#src/payments/Processor.ts"
import type { ProcessorError } from "#src/payments/ProcessorError.ts"
import { Projections } from "#src/payments/Projections.ts"
import { listPaths } from "#src/payments/scopes.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Secrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** A look asks Stripe some ten times. */
const lookEvery = "15 minutes"
const againAfterRefusal = "5 minutes"
const againAfterMs = 60_000

const prefix = paymentCredentialField("")

const retryable = (error: ProcessorError | StoreUnavailable): Retryable =>
  error._tag === "StoreUnavailable"
    ? new Retryable({ message: error.message })
    : new Retryable({
        message: error.message,
        ...(error.reason === "away" || error.reason === "busy"
          ? { reason: "ProcessorUnavailable", againAfterMs }
          : {})
      })

/** It was made by the platform, and its signing secret was lost. */
const isForgotten = (endpoint: endpoints.Endpoint, uid: string, kept: Kept | undefined): boolean =>
  endpoints.isOurs(endpoint, uid) && endpoint.id !== kept?.endpointId
const isInPlace = (endpoint: endpoints.Endpoint | null | undefined, uid: string, kept: Kept | undefined) =>
  endpoint !== undefined &&
  endpoint !== null &&
  !isForgotten(endpoint, uid, kept) &&
  endpoints.isComplete(endpoint)

const late = new Retryable({ message: "A later reconcile works on the connection; this one stops" })

export const layer = register(
  CustomerPayments,
  { driftInterval: lookEvery, concurrency: 16 },
  Effect.gen(function* () {
    const connections = yield* Connections
    const fingerprint = yield* Fingerprint
    const processor = yield* Processor
    const projections = yield* Projections
    const secrets = yield* Secrets

    /** What the owner gave, if it matches what the specification says of it. */
    const credentials = Effect.fnUntraced(function* ({ orgId, uid }: Pick<Resource, "orgId" | "uid">) {
      const values = yield* Effect.mapError(secrets.readAll({ orgId, uid }, prefix), retryable)
      const secretKey = values.get(paymentCredentialField("secretKey"))
      const webhookSecret = values.get(paymentCredentialField("webhookSecret"))
      return secretKey === undefined || webhookSecret === undefined ? undefined : { secretKey, webhookSecret }
    })
    const given = Effect.fnUntraced(function* (resource: Pick<Resource, "orgId" | "uid">) {
      const found = yield* credentials(resource)
      if (found !== undefined) return found
      return yield* new Retryable({
        reason: "CredentialRefused",
        message: "The credentials are lost: connect the account again"
      })
    })
    const isManageable = (url: string) => url.startsWith("https://")

    return {
      observe: Effect.fnUntraced(function* ({ orgId, uid, spec, status: before, deleting }) {
        const ref = { orgId, uid }
        const print = deleting ? "" : spec.credentials.secretKey
        const status = { key: print, refusal: null, webhookEndpoint: "manual" as const }
        if (deleting) {
          const left = yield* Effect.mapError(connections.remains(ref), retryable)
          return left ? { _tag: "Present" as const, status, differences: [], ready: false } : absent
        }
        const { secretKey } = yield* given(ref)
        // A key stays of its account: one that was of the right one is, whatever was deleted there since.
        const isKnown = spec.checkedKey === print || (before?.key === print && before.refusal === null)
        const objects = isKnown ? [] : yield* Effect.mapError(projections.some(ref), retryable)
        const paths = objects.map(({ type, processorId }) => `${listPaths[type]}/${processorId}` as const)
        const refused = yield* Effect.mapError(
          checkKey(processor, secretKey, spec.credentialScopes, paths),
          retryable
        )
        const kept = Option.getOrUndefined(yield* Effect.mapError(connections.kept(ref), retryable))
        const differences = []
        if (kept?.webhookSecret !== spec.credentials.webhookSecret) {
          differences.push({ field: "/credentials/webhookSecret", message: "is not in force yet" })
        }
        if (refused !== undefined) {
          return {
            _tag: "Present" as const,
            status: { ...status, refusal: refused.refusal },
            differences,
            ready: false,
            reason: "CredentialRefused",
            message: refusalText[refused.refusal],
            pollAfter: againAfterRefusal
          }
        }
        if (kept?.refusedKey === print || kept?.parked === true) {
          differences.push({ field: "/credentials/secretKey", message: "was refused, and works again" })
        }
        const url = connections.webhookUrl(uid)
        const found = isManageable(url)
          ? yield* Effect.mapError(endpoints.findEndpoint(processor, secretKey, url), retryable)
          : undefined
        // A key that may see endpoints and not make them leaves it to its owner, as one that may not see them.
        const endpoint =
          kept?.endpointRefusedKey === print && !isInPlace(found, uid, kept) ? undefined : found
        if (endpoint === null) {
          differences.push({ field: "/webhookEndpoint", message: "is not there at Stripe" })
        } else if (endpoint !== undefined && !isInPlace(endpoint, uid, kept)) {
          const message = isForgotten(endpoint, uid, kept)
            ? "has a signing secret that nobody kept"
            : "is off, or not told of everything"
          differences.push({ field: "/webhookEndpoint", message })
        }
        const ready = kept !== undefined && kept.refusedKey !== print
        const manual = endpoint === undefined
        return {
          _tag: "Present" as const,
          status: { ...status, webhookEndpoint: manual ? ("manual" as const) : ("managed" as const) },
          differences,
          ready,
          ...(manual
            ? {
                note: {
                  reason: "WebhookAddress",
                  message: `Enter this address for webhooks at Stripe, unless it is there already: ${url}`
                }
              }
            : {})
        }
      }),
      converge: Effect.fnUntraced(function* (resource, observation) {
        const { orgId, uid, spec, fence } = resource
        const ref = { orgId, uid, fence }
        const { secretKey, webhookSecret } = yield* given(ref)
        const secret = Redacted.value(webhookSecret)
        const keep = connections.keepSecret(ref, { secret, fingerprint: fingerprint(secret) })
        if (!(yield* Effect.mapError(externalCall("payments.secret.keep", "write")(keep), retryable)))
          return yield* late
        const fields = observation._tag === "Present" ? observation.differences.map(({ field }) => field) : []
        if (!fields.includes("/webhookEndpoint") || spec.credentials.webhookSecret !== fingerprint(secret))
          return
        const url = connections.webhookUrl(uid)
        const mend = Effect.gen(function* () {
          const found = yield* endpoints.findEndpoint(processor, secretKey, url)
          if (found === undefined) return true
          const kept = Option.getOrUndefined(yield* connections.kept(ref))
          if (found !== null && !isForgotten(found, uid, kept)) {
            yield* endpoints.completeEndpoint(processor, secretKey, found.id)
            return true
          }
          // Only its making tells the secret of an endpoint.
          if (found !== null) yield* endpoints.deleteEndpoint(processor, secretKey, found.id)
          const made = yield* endpoints.makeEndpoint(processor, secretKey, {
            uid,
            url,
            attempt: String(fence)
          })
          const isKept = yield* externalCall(
            "payments.endpoint.keep",
            "write"
          )(connections.keepEndpoint(ref, made))
          // Nobody will ever know its secret.
          if (!isKept) yield* endpoints.deleteEndpoint(processor, secretKey, made.id)
          return isKept
        })
        const mended = mend.pipe(
          Effect.catchIf(
            (error) => error._tag === "ProcessorError" && error.reason === "right",
            () => Effect.as(connections.refuseEndpoint(ref, spec.credentials.secretKey), true)
          )
        )
        if (!(yield* Effect.mapError(mended, retryable))) return yield* late
      }),
      remove: Effect.fnUntraced(function* ({ orgId, uid, fence }) {
        const ref = { orgId, uid, fence }
        if (!(yield* Effect.mapError(connections.isLatest(ref), retryable))) return yield* late
        const found = yield* credentials(ref)
        if (found !== undefined) {
          yield* Effect.mapError(
            endpoints.removeEndpoint({ processor, connections }, ref, found.secretKey),
            retryable
          )
        }
        yield* Effect.mapError(externalCall("payments.forget", "write")(connections.forget(ref)), retryable)
      })
    }
  })
)
