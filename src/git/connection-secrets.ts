/** What is sealed of a connection: the credential, and the secret that its webhook is signed with. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { KeyRing, KeyRingError, Sealed } from "#src/store/KeyRing.ts"

/** The words that it is bound to. */
export const connectionPlace = (orgId: string, id: string): ReadonlyArray<string> => [
  "git-connection",
  orgId,
  id
]

const Stored = Schema.Struct({
  /** Of all kinds but an app. */
  token: Schema.optionalKey(Schema.String),
  /** PEM, of an app. */
  privateKey: Schema.optionalKey(Schema.String),
  webhookSecret: Schema.String
})
const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Stored))

export interface ConnectionSecrets {
  readonly token: Redacted.Redacted | undefined
  readonly privateKey: Redacted.Redacted | undefined
  readonly webhookSecret: Redacted.Redacted
}

export const sealConnection = (
  ring: KeyRing["Service"],
  orgId: string,
  id: string,
  { token, privateKey, webhookSecret }: ConnectionSecrets
): Sealed => {
  const stored: typeof Stored.Type = {
    ...(token === undefined ? {} : { token: Redacted.value(token) }),
    ...(privateKey === undefined ? {} : { privateKey: Redacted.value(privateKey) }),
    webhookSecret: Redacted.value(webhookSecret)
  }
  return ring.seal(connectionPlace(orgId, id), Redacted.make(JSON.stringify(stored)))
}

export const openConnection = (
  ring: KeyRing["Service"],
  orgId: string,
  id: string,
  sealed: Sealed
): Effect.Effect<ConnectionSecrets, KeyRingError> =>
  ring.open(connectionPlace(orgId, id), sealed).pipe(
    // What was sealed is what `sealConnection` made; a message about it would quote it.
    Effect.flatMap((text) => Effect.orDie(Effect.mapError(decode(Redacted.value(text)), () => "damaged"))),
    Effect.map(({ token, privateKey, webhookSecret }) => ({
      token: token === undefined ? undefined : Redacted.make(token),
      privateKey: privateKey === undefined ? undefined : Redacted.make(privateKey),
      webhookSecret: Redacted.make(webhookSecret)
    }))
  )
