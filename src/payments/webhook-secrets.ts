/** The signing secrets of a connection's webhooks that are in force, as they are sealed. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { KeyRing, KeyRingError, Sealed } from "#src/store/KeyRing.ts"

/** How long the secret before the present one holds. */
export const overlapMs = 24 * 3_600_000

const WebhookSecrets = Schema.Struct({
  /** What the owner gave last. */
  current: Schema.String,
  previous: Schema.optionalKey(Schema.Struct({ secret: Schema.String, untilMs: Schema.Finite })),
  /** Of the endpoint that the platform made. */
  endpoint: Schema.optionalKey(Schema.String)
})
export type WebhookSecrets = typeof WebhookSecrets.Type
const Stored = Schema.fromJsonString(WebhookSecrets)
const decode = Schema.decodeUnknownEffect(Stored)

/** The words that they are bound to. */
export const webhookSecretsPlace = (orgId: string, uid: string): ReadonlyArray<string> => [
  "payment connection",
  orgId,
  uid
]

export const sealWebhookSecrets = (
  ring: KeyRing["Service"],
  orgId: string,
  uid: string,
  secrets: WebhookSecrets
): Sealed => ring.seal(webhookSecretsPlace(orgId, uid), Redacted.make(JSON.stringify(secrets)))

export const openWebhookSecrets = (
  ring: KeyRing["Service"],
  orgId: string,
  uid: string,
  sealed: Sealed
): Effect.Effect<WebhookSecrets, KeyRingError> =>
  ring.open(webhookSecretsPlace(orgId, uid), sealed).pipe(
    // What was sealed is what `sealWebhookSecrets` made; a message about it would quote it.
    Effect.flatMap((text) => Effect.orDie(Effect.mapError(decode(Redacted.value(text)), () => "damaged")))
  )

/** A secret takes the place of the present one, which holds for a while still. */
export const rotated = (
  before: WebhookSecrets | undefined,
  current: string,
  nowMs: number
): WebhookSecrets => ({
  ...before,
  current,
  ...(before === undefined || before.current === current
    ? {}
    : { previous: { secret: before.current, untilMs: nowMs + overlapMs } })
})

/** Those that hold now. `given` is what the owner gave last, which may not be in force yet. */
export const inForce = (
  secrets: WebhookSecrets | undefined,
  given: string | undefined,
  nowMs: number
): ReadonlyArray<Redacted.Redacted> => {
  const { current, previous, endpoint } = secrets ?? {}
  const valid = [
    given,
    current,
    endpoint,
    ...(previous !== undefined && previous.untilMs > nowMs ? [previous.secret] : [])
  ]
  return [...new Set(valid.filter((one) => one !== undefined))].map((one) => Redacted.make(one))
}
