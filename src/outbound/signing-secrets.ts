/** What calls to the app of an environment are signed with. The first secret is made when it is first needed. */
import * as Effect from "effect/Effect"
import { Db, repeatable } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { type SecretRef, secretPlace } from "#src/store/Secrets.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { newSigningSecret } from "./signature.ts"

/** Secret fields of an environment. */
export const signingField = "signingSecret"
export const previousSigningField = "previousSigningSecret"

interface Sealed {
  readonly key_id: string
  readonly sealed: Uint8Array
}

export const makeSigningSecrets = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const ring = yield* KeyRing

  const open = (ref: SecretRef, { key_id: keyId, sealed: bytes }: Sealed) =>
    Effect.mapError(
      ring.open(secretPlace(ref), { keyId, bytes }),
      (error) => new StoreUnavailable({ message: error.message, cause: error })
    )

  /** Of several that make it at once, one value is stored and all read that one. */
  const make = (orgId: string, uid: string) => {
    const sealed = ring.seal(secretPlace({ orgId, uid, field: signingField }), newSigningSecret())
    return repeatable(sql`
      insert into secret (org_id, uid, field, key_id, sealed)
      values (${orgId}::uuid, ${uid}::uuid, ${signingField}, ${sealed.keyId}, ${sealed.bytes})
      on conflict (org_id, uid, field) do nothing`)
  }

  /** Of an environment that is there. */
  const current = Effect.fn("SigningSecrets.current")(function* (orgId: string, uid: string) {
    const read = repeatable(sql<Sealed>`
      select key_id, sealed from secret
      where org_id = ${orgId}::uuid and uid = ${uid}::uuid and field = ${signingField}`)
    let [row] = yield* read
    if (row === undefined) {
      yield* make(orgId, uid)
      row = (yield* read)[0]
    }
    return row === undefined
      ? yield* new StoreUnavailable({ message: "The signing secret of the environment is gone" })
      : yield* open({ orgId, uid, field: signingField }, row)
  })

  return { open, make, current }
})
