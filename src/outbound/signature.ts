/**
 * Proof that a request comes from this platform and was made for its receiver.
 *
 * It is given in two forms: `svc-signature`, keyed with the secret as it is written, and the headers of Standard
 * Webhooks, whose libraries exist in most languages. A secret that is being replaced signs beside the new one, so
 * that receivers can change over whenever they like.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"
import * as Redacted from "effect/Redacted"

export interface Signed {
  readonly id: string
  readonly timestampSeconds: number
  readonly body: string
}

const prefix = "whsec_"
const hmac = (key: Uint8Array, text: string) => createHmac("sha256", key).update(text)
/** Libraries of Standard Webhooks take what follows the prefix for base64. */
const standardKey = (secret: string) =>
  Buffer.from(secret.startsWith(prefix) ? secret.slice(prefix.length) : secret, "base64")

/** The headers to send `body` with; the secrets newest first. */
export const signed = (
  secrets: ReadonlyArray<Redacted.Redacted>,
  { id, timestampSeconds, body }: Signed
): Record<string, string> => {
  const time = String(Math.floor(timestampSeconds))
  const values = secrets.map(Redacted.value)
  const ours = values.map((secret) => `v1=${hmac(Buffer.from(secret), `${time}.${body}`).digest("hex")}`)
  const standard = values.map(
    (secret) => `v1,${hmac(standardKey(secret), `${id}.${time}.${body}`).digest("base64")}`
  )
  return {
    "svc-signature": [`t=${time}`, ...ours].join(","),
    "webhook-id": id,
    "webhook-timestamp": time,
    "webhook-signature": standard.join(" ")
  }
}

/** Seconds that a signature is good for: clocks may differ so much, and what is overheard may be sent again so long. */
const toleranceSeconds = 300

const fieldsOf = (signature: string) => signature.split(",", 10).map((field) => field.trim().split("=", 2))

/** What the field `svc-signature` says when it was made, if that is not long ago and it has the form of one. */
const timeOf = (signature: string, nowSeconds: number): string | undefined => {
  const fields = fieldsOf(signature)
  const times = fields.flatMap(([name, value = ""]) => (name === "t" ? [value] : []))
  const [time = ""] = times
  if (times.length !== 1 || !/^\d{1,12}$/.test(time)) return undefined
  if (Math.abs(nowSeconds - Number(time)) > toleranceSeconds) return undefined
  return fields.some(([name, value = ""]) => name === "v1" && /^[0-9a-f]{64}$/i.test(value))
    ? time
    : undefined
}

/** Whether it is worth reading a body for the field: whether it can hold for any. */
export const maySign = (signature: string, nowSeconds: number): boolean =>
  timeOf(signature, nowSeconds) !== undefined

/** Whether the field `svc-signature` was made for this body with one of the secrets, not long ago. */
export const isSigned = (
  secrets: ReadonlyArray<Redacted.Redacted>,
  signature: string,
  body: Uint8Array,
  nowSeconds: number
): boolean => {
  const time = timeOf(signature, nowSeconds)
  if (time === undefined) return false
  const expected = secrets.map((secret) =>
    hmac(Buffer.from(Redacted.value(secret)), `${time}.`)
      .update(body)
      .digest()
  )
  return fieldsOf(signature).some(([name, value = ""]) => {
    const given = Buffer.from(value, "hex")
    return name === "v1" && expected.some((one) => one.length === given.length && timingSafeEqual(one, given))
  })
}

/** Random bytes that a signing secret is made of. 40 digits are 30 bytes of base64 as well. */
export const signingSecretBytes = 20
export const signingSecretOf = (random: Buffer): Redacted.Redacted =>
  Redacted.make(`${prefix}${random.toString("hex")}`)
export const newSigningSecret = (): Redacted.Redacted => signingSecretOf(randomBytes(signingSecretBytes))
