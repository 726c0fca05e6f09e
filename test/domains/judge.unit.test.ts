import { assert, describe, it } from "@effect/vitest"
import { judge, nextLook, type Seen } from "#src/domains/judge.ts"
import type { Certificate } from "#src/edge/certificates/Certificates.ts"

const claim: Seen["claim"] = {
  uid: "u",
  age: 60,
  provedAge: undefined,
  lapsed: false,
  contested: false,
  challenge: "c0ffee"
}
const proved = { ...claim, provedAge: 30 }
const certificate: Certificate = {
  orgId: "o",
  name: "www.example.com",
  state: "issued",
  issuer: "acme",
  fingerprint: "ab",
  expiresAt: new Date("2030-01-01T00:00:00.000Z"),
  renewAt: undefined,
  error: undefined,
  nextLookAt: undefined
}
const ordered: Certificate = { ...certificate, state: "pending", expiresAt: undefined }
const elsewhere = { _tag: "Elsewhere", message: "It leads elsewhere" } as const
const unknown = { _tag: "Unknown", message: "SERVFAIL" } as const
const host = { field: "/host", message: "not there" }

const first: Seen = {
  hostname: "www.example.com",
  claim,
  dns: { _tag: "Here", by: "cname" },
  shown: true,
  host,
  certificate: undefined,
  served: { _tag: "Not", message: "It is not served yet" },
  before: undefined
}
const active: Seen = {
  ...first,
  claim: proved,
  host: undefined,
  certificate,
  served: { _tag: "Everywhere" },
  before: "active"
}

const cases: ReadonlyArray<
  readonly [
    what: string,
    seen: Seen,
    state: string,
    ready: boolean,
    reason: string | undefined,
    open: ReadonlyArray<string>
  ]
> = [
  ["DNS leads elsewhere", { ...first, dns: elsewhere }, "pending_dns", false, "PendingDns", []],
  ["no name server answers", { ...first, dns: unknown }, "pending_dns", false, "PendingDns", []],
  ["DNS leads here", first, "pending_ssl", false, undefined, ["/dns", "/host", "/certificate"]],
  ["the challenge is not met", { ...first, shown: false }, "pending_dns", false, "PendingDns", []],
  [
    "the certificate is ordered",
    { ...active, certificate: ordered, before: "pending_ssl" },
    "pending_ssl",
    false,
    "PendingCertificate",
    []
  ],
  [
    "the certificate was refused for now",
    {
      ...active,
      certificate: { ...ordered, error: { message: "too many", type: "rateLimited" } },
      before: "pending_ssl"
    },
    "pending_ssl",
    false,
    "CertificateFailed",
    []
  ],
  [
    "DNS moved before there was a certificate",
    { ...active, dns: elsewhere, certificate: ordered, before: "pending_ssl" },
    "pending_dns",
    false,
    "PendingDns",
    []
  ],
  [
    "no name server answers while the certificate is ordered",
    { ...active, dns: unknown, certificate: ordered, before: "pending_ssl" },
    "pending_ssl",
    false,
    "PendingCertificate",
    []
  ],
  [
    "an edge does not serve it yet",
    { ...active, served: { _tag: "Not", message: "no" }, before: "pending_ssl" },
    "pending_ssl",
    false,
    "NotServed",
    []
  ],
  [
    "no edge is at work yet",
    { ...active, served: { _tag: "NoEdge" }, before: "pending_ssl" },
    "pending_ssl",
    false,
    "EdgeUnreachable",
    []
  ],
  [
    "an edge does not answer before it was served",
    { ...active, served: { _tag: "NoAnswer", message: "it cannot be reached" }, before: "pending_ssl" },
    "pending_ssl",
    false,
    "EdgeUnreachable",
    []
  ],
  [
    "it was served and an edge does not answer",
    { ...active, served: { _tag: "NoAnswer", message: "it cannot be reached" } },
    "active",
    true,
    "EdgeUnreachable",
    []
  ],
  ["every edge serves it", active, "active", true, undefined, []],
  [
    "it was served and no edge is at work",
    { ...active, served: { _tag: "NoEdge" } },
    "active",
    true,
    "EdgeUnreachable",
    []
  ],
  ["DNS moved away while it is served", { ...active, dns: elsewhere }, "active", true, "DnsMoved", []],
  ["name servers fail while it is served", { ...active, dns: unknown }, "active", true, "DnsUnknown", []],
  [
    "a renewal fails",
    { ...active, certificate: { ...certificate, error: { message: "the CA is away", type: "unreachable" } } },
    "active",
    true,
    "CertificateRenewalFailed",
    []
  ],
  [
    "the edge lost its name",
    { ...active, host, served: { _tag: "Not", message: "no" } },
    "pending_ssl",
    false,
    "NotServed",
    ["/host"]
  ],
  [
    "its certificate was lost",
    { ...active, certificate: undefined, served: { _tag: "Not", message: "no" } },
    "pending_ssl",
    false,
    "PendingCertificate",
    ["/certificate"]
  ]
]

describe("a domain", () => {
  for (const [what, seen, state, ready, reason, open] of cases) {
    it(`where ${what} is ${state}`, () => {
      const verdict = judge(seen)
      assert.deepStrictEqual(
        [
          verdict.status.state,
          verdict.ready,
          verdict.reason ?? verdict.note?.reason,
          verdict.differences.map(({ field }) => field)
        ],
        [state, ready, reason, open]
      )
    })
  }

  it("says what is wrong in the words of whoever refused", () => {
    const error = { message: "CAA record for example.com prevents issuance", type: "caa" }
    const refused = judge({ ...active, certificate: { ...ordered, error }, before: "pending_ssl" })
    assert.include(refused.status.verificationErrors ?? "", error.message)
    assert.include(
      judge({ ...first, shown: false }).status.verificationErrors ?? "",
      "_svc-challenge.www.example.com with the value c0ffee"
    )
    assert.include(
      judge({ ...active, dns: unknown, certificate: ordered }).status.verificationErrors ?? "",
      "SERVFAIL"
    )
    assert.isNull(judge(active).status.verificationErrors)
    assert.isNull(judge({ ...active, certificate: ordered }).status.verificationErrors)
  })

  it("that met its challenge once is not asked again", () => {
    assert.isUndefined(judge({ ...active, shown: false }).note)
  })

  it("notes once a day that DNS leads here still", () => {
    const fields = (provedAge: number, dns: Seen["dns"] = active.dns) =>
      (judge({ ...active, dns, claim: { ...proved, provedAge } }).maintenance ?? []).map(({ field }) => field)
    assert.deepStrictEqual(fields(80_000), [])
    assert.deepStrictEqual(fields(90_000), ["/dns"])
    assert.deepStrictEqual(fields(90_000, elsewhere), [])
    assert.deepStrictEqual(fields(90_000, unknown), [])
  })
})

it("looks come rarer the longer a domain waits, at no common moment", () => {
  const at = (age: number, random: number, provedAge?: number, reason = "PendingDns") =>
    nextLook({ ...claim, age, provedAge }, reason, random)
  assert.deepStrictEqual([at(0, 0.5), at(100, 0.5), at(86_400, 0.5)], [2, 10, 600])
  assert.isBelow(at(86_400, 0), at(86_400, 1))
  assert.strictEqual(at(86_400, 0.5, 1), 2, "it begins anew once DNS is right")
  for (const reason of ["NotServed", "EdgeUnreachable"])
    assert.strictEqual(at(86_400, 0.5, 80_000, reason), 15, "the edge alone is waited for")
})
