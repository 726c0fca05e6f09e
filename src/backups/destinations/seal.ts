/** The credentials of a destination, as they are sealed. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { KeyRing, KeyRingError, Sealed } from "#src/store/KeyRing.ts"
import type { DestinationConfig } from "./connection.ts"

export type Credentials = Pick<DestinationConfig, "accessKeyId" | "secretAccessKey" | "sessionToken">

/** The words that they are bound to. */
export const destinationPlace = (orgId: string, id: string, version: string): ReadonlyArray<string> => [
  "backup destination",
  orgId,
  id,
  version
]

const Stored = Schema.fromJsonString(
  Schema.Struct({
    accessKeyId: Schema.String,
    secretAccessKey: Schema.String,
    sessionToken: Schema.optionalKey(Schema.String)
  })
)
const decode = Schema.decodeUnknownEffect(Stored)

export const sealCredentials = (
  ring: KeyRing["Service"],
  place: ReadonlyArray<string>,
  { accessKeyId, secretAccessKey, sessionToken }: Credentials
): Sealed =>
  ring.seal(
    place,
    Redacted.make(
      JSON.stringify({
        accessKeyId,
        secretAccessKey: Redacted.value(secretAccessKey),
        ...(sessionToken === undefined ? {} : { sessionToken: Redacted.value(sessionToken) })
      })
    )
  )

export const openCredentials = (
  ring: KeyRing["Service"],
  place: ReadonlyArray<string>,
  sealed: Sealed
): Effect.Effect<Credentials, KeyRingError> =>
  ring.open(place, sealed).pipe(
    // What was sealed is what `sealCredentials` made; a message about it would quote it.
    Effect.flatMap((text) => Effect.orDie(Effect.mapError(decode(Redacted.value(text)), () => "damaged"))),
    Effect.map(({ accessKeyId, secretAccessKey, sessionToken }) => ({
      accessKeyId,
      secretAccessKey: Redacted.make(secretAccessKey),
      sessionToken: sessionToken === undefined ? undefined : Redacted.make(sessionToken)
    }))
  )
