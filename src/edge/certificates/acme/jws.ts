/** Signed requests of ACME (RFC 8555, section 6.2): JWS in its flattened form (RFC 7515), with ES256 on P-256. */
import { createHash, createHmac, createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto"
import * as Schema from "effect/Schema"

const Jwk = Schema.Struct({
  kty: Schema.Literal("EC"),
  crv: Schema.Literal("P-256"),
  x: Schema.String,
  y: Schema.String
})
const decodeJwk = Schema.decodeUnknownSync(Jwk)

const base64url = (value: string | Buffer): string => Buffer.from(value).toString("base64url")
const encode = (value: unknown): string => base64url(JSON.stringify(value))

export interface AccountKey {
  readonly key: KeyObject
  /** The public part, its members in the order that the thumbprint needs (RFC 7638, section 3). */
  readonly jwk: { readonly crv: string; readonly kty: string; readonly x: string; readonly y: string }
  readonly thumbprint: string
}

/** From PKCS #8 in PEM. */
export const accountKeyOf = (privateKeyPem: string): AccountKey => {
  const key = createPrivateKey(privateKeyPem)
  const { crv, kty, x, y } = decodeJwk(createPublicKey(key).export({ format: "jwk" }))
  const jwk = { crv, kty, x, y }
  return { key, jwk, thumbprint: createHash("sha256").update(JSON.stringify(jwk)).digest("base64url") }
}

/** `payload` undefined: a request that only reads (section 6.3). */
export const signed = (
  { key }: AccountKey,
  header: Readonly<Record<string, unknown>>,
  payload: unknown
): string => {
  const protectedPart = encode({ alg: "ES256", ...header })
  const body = payload === undefined ? "" : encode(payload)
  const signature = sign("sha256", Buffer.from(`${protectedPart}.${body}`), {
    key,
    dsaEncoding: "ieee-p1363"
  })
  return JSON.stringify({ protected: protectedPart, payload: body, signature: base64url(signature) })
}

/** Binds the account to one that the authority knows already (section 7.3.4). `hmacKey` is in base64url. */
export const externalAccountBinding = (
  { jwk }: AccountKey,
  url: string,
  { kid, hmacKey }: { readonly kid: string; readonly hmacKey: string }
) => {
  const protectedPart = encode({ alg: "HS256", kid, url })
  const payload = encode(jwk)
  const mac = createHmac("sha256", Buffer.from(hmacKey, "base64url")).update(`${protectedPart}.${payload}`)
  return { protected: protectedPart, payload, signature: mac.digest("base64url") }
}
