/** The signing secrets of an endpoint, as they are sealed: the one that holds, and the one before it. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { KeyRing, KeyRingError, Sealed } from "#src/store/KeyRing.ts"

/** The words that they are bound to. */
export const webhookPlace = (orgId: string, id: string): ReadonlyArray<string> => ["webhook", orgId, id]

const Stored = Schema.fromJsonString(Schema.NonEmptyArray(Schema.String))
const decode = Schema.decodeUnknownEffect(Stored)

export const sealSecrets = (
  ring: KeyRing["Service"],
  orgId: string,
  id: string,
  secrets: ReadonlyArray<Redacted.Redacted>
): Sealed => ring.seal(webhookPlace(orgId, id), Redacted.make(JSON.stringify(secrets.map(Redacted.value))))

/** Newest first. */
export const openSecrets = (
  ring: KeyRing["Service"],
  orgId: string,
  id: string,
  sealed: Sealed
): Effect.Effect<ReadonlyArray<Redacted.Redacted>, KeyRingError> =>
  ring.open(webhookPlace(orgId, id), sealed).pipe(
    // What was sealed is what `sealSecrets` made; a message about it would quote it.
    Effect.flatMap((text) => Effect.orDie(Effect.mapError(decode(Redacted.value(text)), () => "damaged"))),
    Effect.map((values) => values.map((value) => Redacted.make(value)))
  )
