import { assert, describe, it } from "@effect/vitest"
import { isSigned, newSigningSecret, signed } from "#src/outbound/signature.ts"

const [secret, former, foreign] = [newSigningSecret(), newSigningSecret(), newSigningSecret()]
const timestampSeconds = 1_800_000_000
const body = '{"deep":[1,null,"ü"]}'
const bytes = Buffer.from(body)
const by = (...secrets: Array<typeof secret>) =>
  signed(secrets, { id: "1", timestampSeconds, body })["svc-signature"] ?? ""

describe("the signature of a call", () => {
  it("holds for each secret that signed it, for five minutes", () => {
    assert.isTrue(isSigned([secret], by(secret), bytes, timestampSeconds))
    assert.isTrue(isSigned([secret, former], by(former), bytes, timestampSeconds))
    assert.isTrue(isSigned([former], by(secret, former), bytes, timestampSeconds))
    for (const off of [-300, 300])
      assert.isTrue(isSigned([secret], by(secret), bytes, timestampSeconds + off))
    for (const off of [-301, 301])
      assert.isFalse(isSigned([secret], by(secret), bytes, timestampSeconds + off))
  })

  it("holds for nothing else", () => {
    assert.isFalse(isSigned([secret], by(foreign), bytes, timestampSeconds))
    assert.isFalse(isSigned([], by(secret), bytes, timestampSeconds))
    assert.isFalse(isSigned([secret], by(secret), Buffer.from(`${body} `), timestampSeconds))
    const [time, mac] = by(secret).split(",")
    const wrong = [
      "",
      mac,
      time,
      `t=,${mac}`,
      `t=x,${mac}`,
      `t=1e9,${mac}`,
      `t=${timestampSeconds + 1},${mac}`,
      `${time},t=${timestampSeconds + 1},${mac}`,
      `${time},v1=`,
      `${time},v1=zz`,
      `${time},v0=${mac?.slice(3)}`,
      `${time},${mac?.slice(0, -2)}`,
      `${time},${"v1=00,".repeat(20)}${mac}`
    ]
    for (const signature of wrong)
      assert.isFalse(isSigned([secret], signature ?? "", bytes, timestampSeconds), signature)
  })
})
