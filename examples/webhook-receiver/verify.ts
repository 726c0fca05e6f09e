// Checks that a request comes from the platform. Copy it, or use any library of Standard Webhooks
// (https://www.standardwebhooks.com) with the same secret: both signatures are sent.
import { createHmac, timingSafeEqual } from "node:crypto"

export interface WebhookEvent {
  readonly id: string
  readonly type: string
  readonly createdAt: string
  readonly organizationId: string
  readonly projectId: string | null
  readonly data: unknown
}

/** Seconds that the clocks may differ, and that somebody has to send again what they overheard. */
const tolerance = 300

/**
 * The event, or an error that says why the request is not to be trusted. `secret` is `whsec_...` as it was shown when
 * the webhook was made; `body` the bytes as they came, because JSON that was parsed and written again has another
 * signature; names in `headers` are in lower case, as Node gives them.
 */
export const verify = (
  secret: string,
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
  body: string,
  now = Date.now()
): WebhookEvent => {
  const header = String(headers["svc-signature"] ?? "")
  const fields = header.split(",").map((field) => field.split("="))
  const time = fields.find(([name]) => name === "t")?.[1] ?? ""
  if (!/^\d+$/.test(time)) throw new Error("There is no svc-signature")
  if (Math.abs(now / 1000 - Number(time)) > tolerance) throw new Error("The signature is too old")
  const expected = createHmac("sha256", secret).update(`${time}.${body}`).digest()
  // Two of them while the secret is replaced.
  const good = fields.some(([name, value = ""]) => {
    const given = Buffer.from(value, "hex")
    return name === "v1" && given.length === expected.length && timingSafeEqual(given, expected)
  })
  if (!good) throw new Error("The signature is wrong")
  return JSON.parse(body)
}
