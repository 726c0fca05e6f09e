/** `CustomerPayments`: the Stripe account of an app's owner, which the app's own customers pay into. One per environment. */
import * as Schema from "effect/Schema"
import { warning } from "./condition.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { asObject, masked, section, usualEnvironment } from "./manifest-mapping.ts"
import { defaultEnvironment } from "./names.ts"

/** The one name that the resource has in its environment. */
export const customerPaymentsName = "payments"

/** What may be done with the account. Writing includes reading. */
export const paymentScopes = [
  "products:read",
  "products:write",
  "prices:read",
  "prices:write",
  "customers:read",
  "customers:write",
  "checkout_sessions:read",
  "checkout_sessions:write",
  "billing_portal:write",
  "subscriptions:read",
  "subscriptions:write"
] as const
export const PaymentScope = Schema.Literals(paymentScopes).annotate({ identifier: "PaymentScope" })
export type PaymentScope = typeof PaymentScope.Type

export const CredentialScopes = Schema.Array(PaymentScope)
  .check(Schema.isMinLength(1), Schema.isMaxLength(paymentScopes.length), Schema.isUnique())
  .annotate({ description: "The operations that are allowed, whatever else the key may do" })

/**
 * Of a fault in a secret the message tells what is expected, never what was given. Test keys and live keys differ in their
 * prefix (Stripe documentation, "API keys").
 */
const secret = (pattern: RegExp, expected: string) =>
  Schema.String.check(Schema.isPattern(pattern, { expected }))
const aKey = "a restricted key of Stripe (rk_test_... or rk_live_...); keys of full access are not accepted"
const aSecret = "the signing secret of a webhook endpoint (whsec_...)"

export const SecretKey = secret(/^rk_(test|live)_[A-Za-z0-9_]{8,240}$/u, aKey).annotate({
  description: "A restricted key of Stripe; stored encrypted, never returned"
})
export const WebhookSecret = secret(/^whsec_[A-Za-z0-9_+/=-]{8,240}$/u, aSecret).annotate({
  description: "The signing secret of the webhook endpoint; stored encrypted, never returned"
})

/** Https, exact, without anything that a URL parser would have to make equal first. */
export const RedirectOrigin = Schema.String.check(
  Schema.isMaxLength(270),
  Schema.isPattern(/^https:\/\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$/u, {
    expected: "an exact https origin in lowercase ASCII, such as https://shop.example.com"
  }),
  Schema.makeFilter((text: string) =>
    URL.canParse(text) && new URL(text).origin === text
      ? undefined
      : "must be an origin as browsers write it, without the usual port"
  )
).annotate({ description: "Where customers may be sent back to: an https origin, compared exactly" })
export const RedirectOrigins = Schema.Array(RedirectOrigin).check(Schema.isMaxLength(50), Schema.isUnique())

/** Secret field under which a credential is sealed. */
export const paymentCredentialField = (key: string): string => `credential/${key}`

export const CustomerPaymentsSpec = Schema.Struct({
  /** The keyed fingerprint of each credential. */
  credentials: Schema.Struct({ secretKey: Schema.String, webhookSecret: Schema.String }),
  credentialScopes: CredentialScopes,
  allowedRedirectOrigins: RedirectOrigins,
  /** Fingerprint of the secret key that Stripe was asked about when it was connected. */
  checkedKey: withDefault(Schema.NullOr(Schema.String), null)
}).annotate({ identifier: "CustomerPaymentsSpec" })
export type CustomerPaymentsSpec = typeof CustomerPaymentsSpec.Type

export const CustomerPaymentsStatus = Schema.Struct({
  /** Fingerprint of the secret key that was looked at last. */
  key: Schema.String,
  /** Why it cannot be used; null: it can. */
  refusal: Schema.NullOr(Schema.Literals(["revoked", "too_wide", "right_missing", "other_account"])),
  /** Whether the platform keeps the webhook endpoint at Stripe, or its owner has to. */
  webhookEndpoint: Schema.Literals(["managed", "manual"])
}).annotate({ identifier: "CustomerPaymentsStatus" })
export type CustomerPaymentsStatus = typeof CustomerPaymentsStatus.Type

const entry = Schema.Struct({
  secretKey: secret(/^(\*{4}|rk_(test|live)_[A-Za-z0-9_]{8,240})$/u, aKey).annotateKey({
    description: `A restricted key of Stripe; ${masked} leaves it as it is`
  }),
  webhookSecret: secret(/^(\*{4}|whsec_[A-Za-z0-9_+/=-]{8,240})$/u, aSecret).annotateKey({
    description: `The signing secret of the webhook endpoint; ${masked} leaves it as it is`
  }),
  credentialScopes: CredentialScopes.annotateKey({
    description: "The operations that are allowed, whatever else the key may do"
  }),
  allowedRedirectOrigins: RedirectOrigins.annotateKey({
    description: "Where customers may be sent back to: https origins, compared exactly"
  }),
  environment: usualEnvironment
})

export const CustomerPayments = defineKind({
  name: "CustomerPayments",
  summary: "The Stripe account that an app's own customers pay into.",
  scope: "environment",
  spec: CustomerPaymentsSpec,
  status: CustomerPaymentsStatus,
  fields: Object.keys(CustomerPaymentsSpec.fields),
  immutable: [],
  internal: ["checkedKey"],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "owner",
  reasons: {
    CredentialRefused: warning(
      "Stripe refuses the key, or it can do too much or too little: connect with another"
    ),
    WebhookAddress: warning("The key may not manage webhook endpoints: enter the address at Stripe yourself"),
    ProcessorUnavailable: warning("Stripe does not answer")
  },
  sealed: { field: "credentials", secret: paymentCredentialField },
  manifest: section({
    section: "customerPayments",
    fields: {
      customerPayments: Schema.optionalKey(Schema.Array(entry).check(Schema.isMaxLength(100))).annotateKey({
        description: "Stripe accounts that the app's own customers pay into, one per environment"
      })
    },
    entries: ({ customerPayments }) =>
      customerPayments?.map(({ environment, secretKey, webhookSecret, ...spec }, index) => ({
        path: ["customerPayments", index],
        environment: environment ?? defaultEnvironment,
        name: customerPaymentsName,
        spec: { ...spec, credentials: { secretKey, webhookSecret } }
      })),
    assemble: (resources) =>
      resources.length === 0
        ? {}
        : {
            customerPayments: resources.map(({ environment, spec: { credentials, ...spec } }) => ({
              environment,
              ...asObject(credentials),
              ...spec
            }))
          }
  }),
  deadlineSeconds: 300
})
