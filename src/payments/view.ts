/** From what is stored to what operations answer. */

import * as Redacted from "effect/Redacted"
import { type Connection, refusalText } from "./Connections.ts"
import type { PaymentEvent } from "./PaymentEvents.ts"
import type { Projected } from "./Projections.ts"
import type * as views from "./views.ts"

const at = (seconds: number | null | undefined): string | null =>
  seconds === null || seconds === undefined ? null : new Date(seconds * 1_000).toISOString()
const times = ({ createdAt, updatedAt }: Projected) => ({
  createdAt: createdAt.toISOString(),
  updatedAt: updatedAt.toISOString()
})

export const configView = (
  connection: Connection | undefined,
  webhookUrl: (uid: string) => string
): typeof views.PaymentsConfig.Encoded =>
  connection === undefined
    ? {
        status: "not_configured",
        statusDetail: null,
        credentialConfigured: false,
        credentialHint: null,
        webhookUrl: null,
        webhookSecretConfigured: false,
        credentialScopes: [],
        allowedRedirectOrigins: [],
        connectedAt: null,
        updatedAt: null
      }
    : {
        status: connection.refusal === undefined ? "ready" : "disabled",
        statusDetail: connection.refusal === undefined ? null : refusalText[connection.refusal],
        credentialConfigured: true,
        credentialHint: Redacted.value(connection.secretKey).slice(-4),
        webhookUrl: webhookUrl(connection.uid),
        webhookSecretConfigured: true,
        credentialScopes: connection.spec.credentialScopes,
        allowedRedirectOrigins: connection.spec.allowedRedirectOrigins,
        connectedAt: connection.createdAt.toISOString(),
        updatedAt: connection.updatedAt.toISOString()
      }

export const productView = (one: Projected): typeof views.ProductView.Encoded => ({
  id: one.id,
  name: one.content.name ?? "",
  description: one.content.description ?? null,
  active: one.content.active ?? false,
  metadata: one.content.metadata ?? {},
  ...times(one)
})

export const priceView = (one: Projected): typeof views.PriceView.Encoded => ({
  id: one.id,
  productId: one.productId,
  unitAmount: one.content.unitAmount ?? null,
  currency: one.content.currency ?? "",
  interval: one.content.interval ?? null,
  active: one.content.active ?? false,
  ...times(one)
})

export const customerView = (one: Projected): typeof views.CustomerView.Encoded => ({
  id: one.id,
  email: one.content.email ?? null,
  name: one.content.name ?? null,
  metadata: one.content.metadata ?? {},
  ...times(one)
})

/** One that nobody paid in time has expired, whether or not Stripe has told so yet. */
export const checkoutView =
  (nowMs: number) =>
  (one: Projected): typeof views.CheckoutView.Encoded => {
    const { mode = "", status = "open", paymentStatus = null, url = null, expiresAt } = one.content
    const over = status === "open" && expiresAt !== undefined && expiresAt * 1_000 <= nowMs
    return {
      id: one.id,
      mode,
      status: over ? "expired" : status,
      paymentStatus,
      customerId: one.customerId,
      url: over ? null : url,
      expiresAt: at(expiresAt),
      ...times(one)
    }
  }

type SubscriptionStatus = typeof views.SubscriptionStatus.Type
const statuses: Readonly<Record<string, readonly [SubscriptionStatus, string | null]>> = {
  incomplete: ["incomplete", null],
  trialing: ["trialing", null],
  active: ["active", null],
  past_due: ["past_due", null],
  canceled: ["canceled", null],
  unpaid: ["unpaid", null],
  paused: [
    "unpaid",
    "Stripe calls it paused: its trial ended without a way to pay, and it goes on when there is one"
  ],
  incomplete_expired: [
    "canceled",
    "Stripe calls it incomplete_expired: the first payment did not come in time"
  ]
}

export const subscriptionView = (one: Projected): typeof views.SubscriptionView.Encoded => {
  const { status: said = "", cancelAtPeriodEnd = false, currentPeriodEnd } = one.content
  const [status, note] = statuses[said] ?? [
    "incomplete",
    `Stripe calls it ${said}, which this release does not know`
  ]
  return {
    id: one.id,
    customerId: one.customerId,
    priceId: one.priceId,
    status,
    note,
    cancelAtPeriodEnd,
    currentPeriodEnd: at(currentPeriodEnd),
    ...times(one)
  }
}

export const eventView = (one: PaymentEvent): typeof views.EventView.Encoded => ({
  id: one.id,
  type: one.type,
  processingStatus: one.status,
  occurredAt: one.occurredAt.toISOString(),
  receivedAt: one.receivedAt.toISOString()
})

export const eventDetail = (one: PaymentEvent): typeof views.EventDetail.Encoded => ({
  ...eventView(one),
  reason: one.reason,
  attempts: one.attempts,
  nextAttemptAt: one.nextAttemptAt?.toISOString() ?? null
})
