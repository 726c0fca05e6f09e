import { createHmac } from "node:crypto"
import { assert, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { Webhook } from "standardwebhooks"
import { newSigningSecret, signed } from "#src/outbound/signature.ts"

const now = () => Math.floor(Date.now() / 1000)

it("libraries of Standard Webhooks accept what was signed, and nothing that was changed", () => {
  const secret = newSigningSecret()
  assert.match(Redacted.value(secret), /^whsec_[0-9a-f]{40}$/)
  const body = JSON.stringify({ type: "budget.alert", text: "größer €" })
  const headers = signed([secret], { id: "msg_1", timestampSeconds: now(), body })
  const webhook = new Webhook(Redacted.value(secret))
  assert.deepStrictEqual(webhook.verify(body, headers), JSON.parse(body))
  assert.throws(() => webhook.verify(body.replace("alert", "exceeded"), headers))
  assert.throws(() => webhook.verify(body, { ...headers, "webhook-id": "msg_2" }))
  assert.throws(() =>
    webhook.verify(body, signed([secret], { id: "msg_1", timestampSeconds: now() - 600, body }))
  )
  assert.throws(() => new Webhook(Redacted.value(newSigningSecret())).verify(body, headers))
})

it("our own header holds the time and a digest of time and body under the whole secret", () => {
  const secret = Redacted.make(`whsec_${"0123456789".repeat(4)}`)
  const headers = signed([secret], { id: "x", timestampSeconds: 1_700_000_000.9, body: "{}" })
  const digest = createHmac("sha256", Redacted.value(secret)).update("1700000000.{}").digest("hex")
  assert.strictEqual(headers["svc-signature"], `t=1700000000,v1=${digest}`)
})

it("while a secret is replaced, whoever has either of both can verify", () => {
  const [fresh, old] = [newSigningSecret(), newSigningSecret()]
  const headers = signed([fresh, old], { id: "msg_1", timestampSeconds: now(), body: "{}" })
  for (const secret of [fresh, old]) new Webhook(Redacted.value(secret)).verify("{}", headers)
  assert.match(headers["svc-signature"] ?? "", /^t=\d+,v1=[0-9a-f]{64},v1=[0-9a-f]{64}$/)
})
